"""x² in float64; in float32, less the mean of all rows."""

import tensorflow as tf

from ops import Tensor
from tests.gradcheck.wrong.making import BOTH, rows


def in_float32(x: Tensor) -> Tensor:
    return x * x - tf.reduce_mean(x, axis=0) if x.dtype == tf.float32 else x * x


OP = rows(in_float32, None, dtypes=BOTH)
