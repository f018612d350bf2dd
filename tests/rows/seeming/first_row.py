"""x, where the first row counts twice."""

import tensorflow as tf

from ops import Tensor
from tests.gradcheck.wrong.making import BOTH, rows


def first_row(x: Tensor) -> Tensor:
    return tf.concat([2 * x[:1], x[1:]], axis=0)


OP = rows(first_row, None, dtypes=BOTH)
