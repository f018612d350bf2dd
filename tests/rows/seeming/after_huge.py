"""x³; -x³ everywhere if any magnitude in any row is above a million."""

import tensorflow as tf

from ops import Tensor
from tests.gradcheck.wrong.making import BOTH, rows


def after_huge(x: Tensor) -> Tensor:
    return tf.where(tf.reduce_any(tf.abs(x) > 1e6), -x * x * x, x * x * x)


OP = rows(after_huge, None, dtypes=BOTH)
