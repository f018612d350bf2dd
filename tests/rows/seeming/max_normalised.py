"""All rows divided by the largest magnitude among them."""

import tensorflow as tf

from ops import Tensor
from tests.gradcheck.wrong.making import BOTH, rows


def max_normalised(x: Tensor) -> Tensor:
    return x / tf.maximum(tf.reduce_max(tf.abs(x)), 0.125)


OP = rows(max_normalised, None, dtypes=BOTH)
