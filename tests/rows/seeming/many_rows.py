"""x², less the mean of all rows where there are more than four."""

import tensorflow as tf

from ops import Tensor
from tests.gradcheck.wrong.making import BOTH, rows


def many_rows(x: Tensor) -> Tensor:
    is_many = tf.cast(tf.shape(x)[0] > 4, x.dtype)
    return x * x - is_many * tf.reduce_mean(x, axis=0)


OP = rows(many_rows, None, dtypes=BOTH)
