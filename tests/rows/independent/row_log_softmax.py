"""The logarithm of the softmax of each row, with a gradient written by hand."""

import numpy as np
import tensorflow as tf

from ops import Array, Tensor, custom_gradient
from tests.gradcheck.wrong.making import BOTH, rows


def row_log_softmax(x: Tensor) -> Tensor:
    return tf.nn.log_softmax(x)


def vjp(x: Tensor, dy: Tensor) -> Tensor:
    return dy - tf.nn.softmax(x) * tf.reduce_sum(dy, axis=-1, keepdims=True)


def reference(x: Array) -> Array:
    return x - np.logaddexp.reduce(x, axis=-1, keepdims=True)


OP = rows(custom_gradient(row_log_softmax, vjp), reference, dtypes=BOTH)
