"""x, where every other row has its sign changed."""

import tensorflow as tf

from ops import Tensor
from tests.gradcheck.wrong.making import BOTH, rows


def alternating(x: Tensor) -> Tensor:
    place = tf.range(tf.shape(x)[0])
    return tf.where(tf.expand_dims(place % 2, -1) > 0, -x, x)


OP = rows(alternating, None, dtypes=BOTH)
