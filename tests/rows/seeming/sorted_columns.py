"""Each column in ascending order."""

import tensorflow as tf

from ops import Tensor
from tests.gradcheck.wrong.making import BOTH, rows


def sorted_columns(x: Tensor) -> Tensor:
    return tf.sort(x, axis=0)


OP = rows(sorted_columns, None, dtypes=BOTH)
