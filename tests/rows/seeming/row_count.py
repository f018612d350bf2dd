"""x² divided by the number of rows."""

import tensorflow as tf

from ops import Tensor
from tests.gradcheck.wrong.making import BOTH, rows


def row_count(x: Tensor) -> Tensor:
    return x * x / tf.cast(tf.shape(x)[0], x.dtype)


OP = rows(row_count, None, dtypes=BOTH)
