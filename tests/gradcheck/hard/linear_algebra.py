"""Inverses and solutions: near singular, badly scaled, and failing in TensorFlow where not invertible."""

from typing import Any

import numpy as np
import tensorflow as tf
from mpmath import mp
from pydantic import Field

from ops import Attrs, Example, custom_gradient
from tests.gradcheck.hard import matrices
from tests.gradcheck.hard.exact import Hard, collected
from tests.gradcheck.hard.making import WIDE
from tests.gradcheck.hard.matrices import of_matrix, of_system


class RidgeAttrs(Attrs):
    """The weight of the penalty."""

    penalty: float = Field(default=0.1, gt=0)


def inverse_vjp(a, dy):
    inverse = tf.linalg.inv(a)
    return -tf.matmul(tf.matmul(inverse, dy, transpose_a=True), inverse, transpose_b=True)


def solve(a, b):
    return tf.linalg.solve(a, b[:, None])[:, 0]


def solve_vjp(a, b, dy):
    db = tf.linalg.solve(a, dy[:, None], adjoint=True)
    return -tf.matmul(db, solve(a, b)[:, None], transpose_b=True), db[:, 0]


def symmetric(a):
    return (a + tf.linalg.matrix_transpose(a)) / 2


def normal_matrix(a, penalty):
    return tf.matmul(a, a, transpose_a=True) + penalty * tf.eye(tf.shape(a)[-1], dtype=a.dtype)


def ridge(a, b, *, penalty):
    return solve(normal_matrix(a, penalty), tf.linalg.matvec(a, b, transpose_a=True))


def ridge_vjp(a, b, dy, *, penalty):
    y, w = ridge(a, b, penalty=penalty), solve(normal_matrix(a, penalty), dy)
    db = tf.linalg.matvec(a, w)
    return (b - tf.linalg.matvec(a, y))[:, None] * w - db[:, None] * y, db


def inverse_reference(a):
    return np.linalg.inv(a)


def solve_reference(a, b):
    return np.linalg.solve(a, b)


def exact_inverse(a):
    return matrices.nested(mp.inverse(mp.matrix(a)))


def exact_solve(a, b):
    return matrices.column(mp.lu_solve(mp.matrix(a), mp.matrix(b)))


def exact_lower_solve(a, b):
    return exact_solve([[v if j <= i else mp.mpf(0) for j, v in enumerate(row)] for i, row in enumerate(a)], b)


def exact_whiten(a, b):
    return matrices.column(mp.lu_solve(mp.cholesky(matrices.exact_symmetric(a)), mp.matrix(b)))


def exact_ridge(a, b, *, penalty):
    m = mp.matrix(a)
    return matrices.column(mp.lu_solve(m.T * m + mp.mpf(penalty) * mp.eye(m.rows), m.T * mp.matrix(b)))


GUARDED: dict[str, Any] = {"validate": matrices.require_invertible}
SCALED: dict[str, Any] = {"sample": matrices.random_badly_scaled, "dtypes": WIDE}
NEAR_SINGULAR: dict[str, Any] = {"sample": matrices.random_near_singular, "dtypes": WIDE}
BY_HAND = custom_gradient(tf.linalg.inv, inverse_vjp)
SOLVE_BY_HAND = custom_gradient(solve, solve_vjp)
SYSTEM = {"a": matrices.GENERAL, "b": [1.0, -2.0, 0.5]}
RIDGES = (Example("weak", SYSTEM), Example("strong", SYSTEM, {"penalty": 100.0}))

OPS = collected(
    Hard(of_matrix("inverse", tf.linalg.inv, inverse_reference, **GUARDED), exact_inverse),
    # TensorFlow raises "Input is not invertible" where it is not.
    Hard(of_matrix("inverse_by_hand", BY_HAND, inverse_reference), exact_inverse),
    Hard(
        of_matrix("inverse_near_singular", tf.linalg.inv, inverse_reference, **NEAR_SINGULAR, **GUARDED), exact_inverse
    ),
    Hard(
        of_matrix("inverse_of_hilbert", BY_HAND, inverse_reference, a=matrices.HILBERT, dtypes=WIDE, **GUARDED),
        exact_inverse,
    ),
    Hard(of_matrix("inverse_badly_scaled", BY_HAND, inverse_reference, **SCALED), exact_inverse),
    Hard(of_system("solve_system", solve, solve_reference, **GUARDED), exact_solve),
    Hard(of_system("solve_badly_scaled", SOLVE_BY_HAND, solve_reference, **SCALED), exact_solve),
    Hard(of_system("solve_near_singular", solve, solve_reference, **NEAR_SINGULAR, **GUARDED), exact_solve),
    Hard(
        of_system(
            "lower_solve",
            lambda a, b: tf.linalg.triangular_solve(a, b[:, None])[:, 0],
            lambda a, b: np.linalg.solve(np.tril(a), b),
            validate=matrices.require_diagonal,
        ),
        exact_lower_solve,
    ),
    Hard(
        of_system(
            "whiten",
            lambda a, b: tf.linalg.triangular_solve(tf.linalg.cholesky(symmetric(a)), b[:, None])[:, 0],
            lambda a, b: np.linalg.solve(np.linalg.cholesky((a + a.T) / 2), b),
            a=matrices.POSITIVE,
            sample=matrices.random_positive,
            validate=matrices.require_positive_definite,
        ),
        exact_whiten,
    ),
    Hard(
        of_system(
            "ridge",
            custom_gradient(ridge, ridge_vjp),
            lambda a, b, *, penalty: np.linalg.solve(a.T @ a + penalty * np.eye(a.shape[-1]), a.T @ b),
            dtypes=WIDE,
            attrs=RidgeAttrs,
            validate=matrices.require_finite,
            examples=RIDGES,
        ),
        exact_ridge,
    ),
)
