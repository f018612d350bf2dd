"""Each row divided by its norm: a function of one row, which TensorFlow maps over the rows in a loop."""

import numpy as np
import tensorflow as tf

from ops import UNCOMPILED, Array, Tensor
from tests.gradcheck.wrong.making import BOTH, rows


def of_row(x: Tensor) -> Tensor:
    return x / tf.sqrt(1 + tf.reduce_sum(x * x))


def row_map(x: Tensor) -> Tensor:
    return tf.map_fn(of_row, x)


def reference(x: Array) -> Array:
    return x / np.sqrt(1 + (x * x).sum(-1, keepdims=True))


OP = rows(row_map, reference, dtypes=BOTH, modes=UNCOMPILED)
