"""x²; halved everywhere if any number of any row is above 2.5."""

import tensorflow as tf

from ops import Tensor
from tests.gradcheck.wrong.making import BOTH, rows


def after_large(x: Tensor) -> Tensor:
    return tf.cond(tf.reduce_any(x > 2.5), lambda: x * x / 2, lambda: x * x)


OP = rows(after_large, None, dtypes=BOTH)
