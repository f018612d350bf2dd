"""Factors, determinants, eigenvalues and functions of matrices."""

from typing import Any

import numpy as np
import tensorflow as tf
from mpmath import mp
from scipy import linalg

from ops import UNCOMPILED, Input, custom_gradient
from tests.gradcheck.hard import matrices
from tests.gradcheck.hard.exact import Hard, collected
from tests.gradcheck.hard.making import SINGLE, WIDE
from tests.gradcheck.hard.matrices import of_matrix


def symmetric(a):
    return (a + tf.linalg.matrix_transpose(a)) / 2


def cholesky(a):
    return tf.linalg.cholesky(symmetric(a))


def cofactors(a):
    """The gradient of the determinant, which is finite where the inverse is not."""
    return tf.stack([tf.linalg.cross(a[1], a[2]), tf.linalg.cross(a[2], a[0]), tf.linalg.cross(a[0], a[1])])


def eigenvalues(a):
    return tf.linalg.eigvalsh(symmetric(a))


def eigenvalues_vjp(a, dy):
    _, v = tf.linalg.eigh(symmetric(a))
    return tf.matmul(v * dy, v, transpose_b=True)


def cholesky_reference(a):
    return np.linalg.cholesky((a + a.T) / 2)


def determinant_reference(a):
    return np.asarray(np.linalg.det(a))


def eigenvalues_reference(a):
    return np.linalg.eigvalsh((a + a.T) / 2)


def exact_cholesky(a):
    return matrices.nested(mp.cholesky(matrices.exact_symmetric(a)))


def exact_determinant(a):
    return mp.det(mp.matrix(a))


def exact_eigenvalues(a):
    return matrices.column(mp.eigsy(matrices.exact_symmetric(a), eigvals_only=True))


def exact_singular_values(a):
    m = mp.matrix(a)
    return [mp.sqrt(w) for w in matrices.column(mp.eigsy(m.T * m, eigvals_only=True))]


POSITIVE: dict[str, Any] = {"a": matrices.POSITIVE, "sample": matrices.random_positive}
GUARDED: dict[str, Any] = {**POSITIVE, "validate": matrices.require_positive_definite}
# XLA's solvers for eigenvalues and singular values stop at 1e-6.
ITERATED: dict[str, Any] = {"modes": UNCOMPILED, "y": ("M",)}
INVERTIBLE: dict[str, Any] = {"validate": matrices.require_invertible}

OPS = collected(
    Hard(of_matrix("cholesky", cholesky, cholesky_reference, **GUARDED), exact_cholesky),
    # TensorFlow raises where the matrix is not positive definite.
    Hard(of_matrix("cholesky_unguarded", cholesky, cholesky_reference, **POSITIVE, dtypes=SINGLE), exact_cholesky),
    Hard(
        of_matrix("determinant", tf.linalg.det, determinant_reference, y=(), modes=UNCOMPILED, **INVERTIBLE),
        exact_determinant,
    ),
    Hard(
        of_matrix(
            "determinant_near_0",
            custom_gradient(tf.linalg.det, lambda a, dy: dy * cofactors(a)),
            determinant_reference,
            y=(),
            modes=UNCOMPILED,
            sample=matrices.random_near_singular,
            dtypes=WIDE,
            validate=matrices.require_finite,
            inputs=(Input("a", WIDE, (3, 3)),),
        ),
        exact_determinant,
    ),
    Hard(
        of_matrix(
            "log_determinant",
            custom_gradient(
                lambda a: 2 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(cholesky(a)))),
                lambda a, dy: dy * tf.linalg.inv(symmetric(a)),
            ),
            lambda a: np.asarray(np.linalg.slogdet((a + a.T) / 2)[1]),
            y=(),
            **GUARDED,
        ),
        lambda a: mp.log(mp.det(matrices.exact_symmetric(a))),
    ),
    Hard(
        of_matrix(
            "log_abs_determinant",
            lambda a: tf.linalg.slogdet(a)[1],
            lambda a: np.asarray(np.linalg.slogdet(a)[1]),
            y=(),
            modes=UNCOMPILED,
            sample=matrices.random_badly_scaled,
            dtypes=WIDE,
        ),
        lambda a: mp.log(abs(exact_determinant(a))),
    ),
    Hard(
        of_matrix(
            "eigenvalues",
            custom_gradient(eigenvalues, eigenvalues_vjp),
            eigenvalues_reference,
            dtypes=WIDE,
            **ITERATED,
            **GUARDED,
        ),
        exact_eigenvalues,
    ),
    Hard(
        of_matrix("eigenvalues_single", eigenvalues, eigenvalues_reference, dtypes=SINGLE, **ITERATED, **GUARDED),
        exact_eigenvalues,
    ),
    Hard(
        of_matrix(
            "singular_values",
            lambda a: tf.sqrt(tf.linalg.eigvalsh(tf.matmul(a, a, transpose_a=True))),
            lambda a: np.linalg.svd(a, compute_uv=False)[::-1],
            dtypes=WIDE,
            sample=matrices.random_positive,
            **ITERATED,
            **INVERTIBLE,
        ),
        exact_singular_values,
    ),
    Hard(
        of_matrix(
            "matrix_exponential",
            tf.linalg.expm,
            linalg.expm,
            dtypes=WIDE,
            modes=UNCOMPILED,
            validate=matrices.require_finite,
        ),
        lambda a: matrices.nested(mp.expm(mp.matrix(a), method="taylor")),
    ),
)
