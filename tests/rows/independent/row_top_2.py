"""The two largest numbers of each row."""

import numpy as np
import tensorflow as tf

from ops import Array, Tensor
from tests.gradcheck.wrong.making import BOTH, rows
from tests.rows.making import apart


def row_top_2(x: Tensor) -> Tensor:
    return tf.math.top_k(x, k=2)[0]


def reference(x: Array) -> Array:
    return np.sort(x, axis=-1)[:, :-3:-1]


OP = rows(row_top_2, reference, dtypes=BOTH, out=("N", 2), sample=apart)
