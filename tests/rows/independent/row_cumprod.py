"""The product of each number of a row and all after it."""

import numpy as np
import tensorflow as tf

from ops import Array, Tensor
from tests.gradcheck.wrong.making import BOTH, rows


def row_cumprod(x: Tensor) -> Tensor:
    return tf.math.cumprod(x, axis=-1, reverse=True)


def reference(x: Array) -> Array:
    return np.cumprod(x[:, ::-1], axis=-1)[:, ::-1]


OP = rows(row_cumprod, reference, dtypes=BOTH, slot={"domain": (0.5, 2.0)})
