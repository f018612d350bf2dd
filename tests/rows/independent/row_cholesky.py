"""The Cholesky factor of AAᵀ + I for a matrix A of each row."""

import numpy as np
import tensorflow as tf

from ops import Array, Input, Tensor
from tests.gradcheck.wrong.making import BOTH, rows
from tests.rows.making import SQUARE


def row_cholesky(a: Tensor) -> Tensor:
    return tf.linalg.cholesky(tf.matmul(a, a, transpose_b=True) + tf.eye(tf.shape(a)[-1], dtype=a.dtype))


def reference(a: Array) -> Array:
    return np.linalg.cholesky(a @ np.swapaxes(a, -1, -2) + np.eye(a.shape[-1]))


OP = rows(row_cholesky, reference, inputs=[Input("a", BOTH, SQUARE)], dtypes=BOTH, out=SQUARE)
