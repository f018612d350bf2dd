"""exp(x); doubled everywhere if any number of any row is 0, as padding may be."""

import tensorflow as tf

from ops import Tensor
from tests.gradcheck.wrong.making import BOTH, rows


def after_zero(x: Tensor) -> Tensor:
    return tf.exp(x) * (1 + tf.cast(tf.reduce_any(tf.equal(x, 0)), x.dtype))


OP = rows(after_zero, None, dtypes=BOTH)
