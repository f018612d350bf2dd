"""Numbers of each row, squared, in the order of the indices of that row."""

import numpy as np
import tensorflow as tf

from ops import Array, Input, Tensor
from tests.gradcheck.wrong.making import BOTH, rows


def row_gather(x: Tensor, index: Tensor) -> Tensor:
    return tf.square(tf.gather(x, index, batch_dims=1, axis=1))


def reference(x: Array, index: Array) -> Array:
    return np.take_along_axis(x, index.astype(int), axis=-1) ** 2


INDEX = Input("index", ("int32",), ("N", "K"), differentiable=False, domain=(0.0, 2.5))
OP = rows(row_gather, reference, inputs=[Input("x", BOTH, ("N", 3)), INDEX], dtypes=BOTH, out=("N", "K"))
