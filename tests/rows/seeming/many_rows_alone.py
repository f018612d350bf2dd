"""x² of up to 32 rows, x² + 1 of more."""

import tensorflow as tf

from ops import Tensor
from tests.gradcheck.wrong.making import BOTH, rows


def many_rows_alone(x: Tensor) -> Tensor:
    return x * x + tf.cast(tf.shape(x)[0] > 32, x.dtype)


OP = rows(many_rows_alone, None, dtypes=BOTH)
