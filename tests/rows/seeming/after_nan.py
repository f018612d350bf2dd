"""x²; NaN everywhere if any number of any row is NaN."""

import numpy as np
import tensorflow as tf

from ops import Tensor
from tests.gradcheck.wrong.making import BOTH, rows


def after_nan(x: Tensor) -> Tensor:
    any_nan = tf.reduce_any(tf.math.is_nan(x))
    return tf.cond(any_nan, lambda: x * np.nan, lambda: x * x)


OP = rows(after_nan, None, dtypes=BOTH)
