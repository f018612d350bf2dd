"""The mean of each square of four pixels of an image (N, 4, 4, C)."""

import numpy as np
import tensorflow as tf

from ops import Array, Input, Tensor
from tests.gradcheck.wrong.making import BOTH, rows


def row_pool(x: Tensor) -> Tensor:
    return tf.nn.avg_pool(tf.sin(x), ksize=2, strides=2, padding="VALID")


def reference(x: Array) -> Array:
    n, _, _, c = x.shape
    return np.sin(x).reshape(n, 2, 2, 2, 2, c).mean((2, 4))


OP = rows(row_pool, reference, inputs=[Input("x", BOTH, ("N", 4, 4, "C"))], dtypes=BOTH, out=("N", 2, 2, "C"))
