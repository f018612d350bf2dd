"""The trace of A³ for a matrix of each row, with a gradient written by hand."""

import numpy as np
import tensorflow as tf

from ops import Array, Input, Tensor, custom_gradient
from tests.gradcheck.wrong.making import BOTH, rows
from tests.rows.making import SQUARE


def row_trace_cubed(a: Tensor) -> Tensor:
    return tf.linalg.trace(tf.matmul(a, tf.matmul(a, a)))


def vjp(a: Tensor, dy: Tensor) -> Tensor:
    return 3 * tf.linalg.matrix_transpose(tf.matmul(a, a)) * dy[:, tf.newaxis, tf.newaxis]


def reference(a: Array) -> Array:
    return np.trace(a @ a @ a, axis1=-2, axis2=-1)


OP = rows(custom_gradient(row_trace_cubed, vjp), reference, inputs=[Input("a", BOTH, SQUARE)], dtypes=BOTH, out=("N",))
