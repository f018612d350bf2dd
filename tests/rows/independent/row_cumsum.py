"""The sum of each number of a row and all before it."""

import numpy as np
import tensorflow as tf

from ops import Array, Tensor
from tests.gradcheck.wrong.making import BOTH, rows


def row_cumsum(x: Tensor) -> Tensor:
    return tf.cumsum(tf.sin(x), axis=-1)


def reference(x: Array) -> Array:
    return np.cumsum(np.sin(x), axis=-1)


OP = rows(row_cumsum, reference, dtypes=BOTH)
