"""A product with the same wide matrix for all rows, x W, whose kernel works in blocks of rows."""

import numpy as np
import tensorflow as tf

from ops import Array, Input, Tensor
from tests.gradcheck.wrong.making import BOTH, rows

W = np.cos(np.arange(16.0 * 24)).reshape(16, 24)


def row_linear(x: Tensor) -> Tensor:
    return tf.matmul(x, tf.constant(W, x.dtype))


def reference(x: Array) -> Array:
    return x @ W


OP = rows(row_linear, reference, inputs=[Input("x", BOTH, ("N", 16))], dtypes=BOTH, out=("N", 24))
