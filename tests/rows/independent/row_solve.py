"""The solution of (A + 4I) x = b for a matrix and a vector of each row."""

import numpy as np
import tensorflow as tf

from ops import Array, Input, Tensor
from tests.gradcheck.wrong.making import BOTH, MATRIX, rows
from tests.rows.making import SQUARE


def row_solve(a: Tensor, b: Tensor) -> Tensor:
    shifted = a + 4 * tf.eye(tf.shape(a)[-1], dtype=a.dtype)
    return tf.squeeze(tf.linalg.solve(shifted, tf.expand_dims(b, -1)), axis=-1)


def reference(a: Array, b: Array) -> Array:
    return np.linalg.solve(a + 4 * np.eye(a.shape[-1]), b[..., None])[..., 0]


A = Input("a", BOTH, SQUARE, domain=(-0.5, 0.5))
OP = rows(row_solve, reference, inputs=[A, Input("b", BOTH, MATRIX)], dtypes=BOTH, out=MATRIX)
