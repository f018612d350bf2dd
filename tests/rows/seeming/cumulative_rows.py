"""Each row is the sum of itself and all rows before it."""

import tensorflow as tf

from ops import Tensor
from tests.gradcheck.wrong.making import BOTH, rows


def cumulative_rows(x: Tensor) -> Tensor:
    return tf.cumsum(x, axis=0)


OP = rows(cumulative_rows, None, dtypes=BOTH)
