"""The softmax of each row."""

import numpy as np
import tensorflow as tf

from ops import Array, Tensor
from tests.gradcheck.wrong.making import BOTH, rows


def row_softmax(x: Tensor) -> Tensor:
    return tf.nn.softmax(x)


def reference(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


OP = rows(row_softmax, reference, dtypes=BOTH)
