"""Two layers, with the same weights for all rows: tanh(x A) B. Rows meet in one product of matrices."""

import numpy as np
import tensorflow as tf

from ops import Array, Input, Tensor
from tests.gradcheck.wrong.making import BOTH, rows

A = np.cos(np.arange(4.0 * 9)).reshape(4, 9)
B = np.sin(np.arange(9.0 * 3)).reshape(9, 3)


def row_mlp(x: Tensor) -> Tensor:
    return tf.matmul(tf.tanh(tf.matmul(x, tf.constant(A, x.dtype))), tf.constant(B, x.dtype))


def reference(x: Array) -> Array:
    return np.tanh(x @ A) @ B


OP = rows(row_mlp, reference, inputs=[Input("x", BOTH, ("N", 4))], dtypes=BOTH, out=("N", 3))
