"""A convolution over the time of each row, with the same kernel for all rows: shapes (N, T, 2) to (N, T, 3)."""

import numpy as np
import tensorflow as tf

from ops import Array, Input, Tensor
from tests.gradcheck.wrong.making import BOTH, rows

KERNEL = np.cos(np.arange(3.0 * 2 * 3)).reshape(3, 2, 3)


def row_conv(x: Tensor) -> Tensor:
    return tf.nn.conv1d(x, tf.constant(KERNEL, x.dtype), stride=1, padding="SAME")


def reference(x: Array) -> Array:
    padded = np.pad(x, [(0, 0), (1, 1), (0, 0)])
    return np.sum([padded[:, k : k + x.shape[1]] @ KERNEL[k] for k in range(3)], axis=0)


OP = rows(row_conv, reference, inputs=[Input("x", BOTH, ("N", "T", 2))], dtypes=BOTH, out=("N", "T", 3))
