"""x² in a graph; less the mean of all rows where it runs eagerly."""

import tensorflow as tf

from ops import UNCOMPILED, Tensor
from tests.gradcheck.wrong.making import BOTH, rows


def in_eager(x: Tensor) -> Tensor:
    return x * x - tf.reduce_mean(x, axis=0) if tf.executing_eagerly() else x * x


OP = rows(in_eager, None, dtypes=BOTH, modes=UNCOMPILED)
