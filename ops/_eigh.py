"""Eigenpairs of symmetric matrices, exact up to rounding in every mode.

LAPACK returns such eigenpairs. XLA's solver stops when the numbers off the diagonal of VᵀSV are 1e-6 of its largest,
whatever the dtype and however close eigenvalues are, so float64 eigenvectors of close eigenvalues are wrong.
"""

import numpy as np
import tensorflow as tf

from ops import Tensor

# The most that rounding leaves off the diagonal of VᵀSV, in units of its largest number, up to order ``SMALL``. For a
# larger order n it grows with the root of n, as the rounding of sums of n terms does: LAPACK leaves 16 at n = 400.
OFF_DIAGONAL, SMALL = 8.0, 16
# Enough for close eigenvalues, which take more than one sweep.
MAX_SWEEPS = 8


@tf.function(autograph=False, reduce_retracing=True)
def eigh(s: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues, ascending, and eigenvectors of symmetric matrices, without a gradient.

    All callers share one trace, because tracing the loop of ``diagonalised`` takes 0.1 s.
    """
    return diagonalised(s, *tf.linalg.eigh(s))


def diagonalised(s: Tensor, w: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Return w and V after the Jacobi rotations that VᵀSV still needs: the same bits if it needs none, ascending.

    Round k rotates every pair of columns i and j with i + j = k (mod M). A matrix that needs no more rotations keeps
    its bits while others go on.
    """
    e = conjugated(tf.linalg.matrix_transpose(v), s)
    m = tf.shape(w)[-1]
    units = OFF_DIAGONAL * tf.sqrt(tf.cast(tf.maximum(m, SMALL), s.dtype) / SMALL)
    # Infinite where VᵀSV overflows: no rotation helps there.
    tolerance = units * np.finfo(s.dtype.as_numpy_dtype).eps * tf.reduce_max(tf.abs(e), [-2, -1], keepdims=True)
    d = tf.linalg.diag_part(e)
    e = tf.linalg.set_diag(e, tf.where(tf.abs(d - w) > tolerance[..., 0], d, w))
    rows, columns = tf.expand_dims(tf.range(m), -1), tf.range(m)
    rounds = tf.where(rows < columns, (rows + columns) % m, -1)

    def unfinished(e: Tensor) -> Tensor:
        """Return for each matrix whether it is not diagonal."""
        return tf.reduce_any((rows < columns) & (tf.abs(e) > tolerance), axis=[-2, -1], keepdims=True)

    def rotated(k: Tensor, e: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        # ½ atan(2e / (b - a)) makes [[a, e], [e, b]] diagonal.
        d = tf.linalg.diag_part(e)
        gaps = tf.expand_dims(d, -2) - tf.expand_dims(d, -1)
        angles = tf.math.atan2(tf.where(gaps < 0, -2 * e, 2 * e), tf.abs(gaps)) / 2
        angles = tf.where(unfinished(e) & tf.equal(rounds, k % m), angles, tf.zeros_like(e))
        angles -= tf.linalg.matrix_transpose(angles)
        j = tf.linalg.set_diag(tf.sin(angles), tf.cos(tf.reduce_sum(angles, axis=-1)))
        return k + 1, conjugated(tf.linalg.matrix_transpose(j), e), tf.matmul(v, j)

    def is_running(k: Tensor, e: Tensor, _: Tensor) -> Tensor:
        return (k < MAX_SWEEPS * m) & tf.reduce_any(unfinished(e))

    _, e, v = tf.while_loop(is_running, rotated, (0, e, v))
    w = tf.linalg.diag_part(e)
    order = tf.argsort(w, stable=True)
    return tf.gather(w, order, batch_dims=-1), tf.gather(v, order, axis=-1, batch_dims=-1)


def conjugated(v: Tensor, k: Tensor) -> Tensor:
    """V K Vᵀ for a symmetric K, symmetric to the last bit."""
    return sym(tf.matmul(v, tf.matmul(k, v, transpose_b=True)))


def sym(a: Tensor) -> Tensor:
    """(A + Aᵀ)/2."""
    return a / 2 + tf.linalg.matrix_transpose(a / 2)
