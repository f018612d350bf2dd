"""The numbers of each row in ascending order."""

import numpy as np
import tensorflow as tf

from ops import Array, Tensor
from tests.gradcheck.wrong.making import BOTH, rows
from tests.rows.making import apart


def row_sort(x: Tensor) -> Tensor:
    return tf.sort(x, axis=-1)


def reference(x: Array) -> Array:
    return np.sort(x, axis=-1)


OP = rows(row_sort, reference, dtypes=BOTH, sample=apart)
