"""log Σ exp(x) of each row."""

import numpy as np
import tensorflow as tf

from ops import Array, Tensor
from tests.gradcheck.wrong.making import BOTH, rows


def row_logsumexp(x: Tensor) -> Tensor:
    return tf.math.reduce_logsumexp(x, axis=-1)


def reference(x: Array) -> Array:
    return np.logaddexp.reduce(x, axis=-1)


OP = rows(row_logsumexp, reference, dtypes=BOTH, out=("N",))
