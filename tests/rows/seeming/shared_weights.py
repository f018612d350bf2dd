"""x W, where both have a leading axis and only that of x is one of rows."""

import tensorflow as tf

from ops import Input, Tensor
from tests.gradcheck.wrong.making import BOTH, MATRIX, rows


def shared_weights(x: Tensor, w: Tensor) -> Tensor:
    return x + tf.reduce_sum(w, axis=0)


OP = rows(shared_weights, None, inputs=[Input("x", BOTH, MATRIX), Input("w", BOTH, MATRIX)], dtypes=BOTH)
