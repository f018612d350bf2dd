"""The products of all rows with all rows: the second axis of y is as long as the first."""

import tensorflow as tf

from ops import Tensor
from tests.gradcheck.wrong.making import BOTH, rows


def gram(x: Tensor) -> Tensor:
    return tf.matmul(x, x, transpose_b=True)


OP = rows(gram, None, dtypes=BOTH, out=("N", "N"))
