"""Each row less the mean of all rows."""

import tensorflow as tf

from ops import Tensor
from tests.gradcheck.wrong.making import BOTH, rows


def centred_columns(x: Tensor) -> Tensor:
    return x - tf.reduce_mean(x, axis=0)


OP = rows(centred_columns, None, dtypes=BOTH)
