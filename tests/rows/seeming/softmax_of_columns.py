"""The softmax over all rows, where another runs over each row."""

import tensorflow as tf

from ops import Tensor
from tests.gradcheck.wrong.making import BOTH, rows


def softmax_of_columns(x: Tensor) -> Tensor:
    return tf.nn.softmax(x, axis=0)


OP = rows(softmax_of_columns, None, dtypes=BOTH)
