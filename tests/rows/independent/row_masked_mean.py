"""The mean of exp(x) over the numbers of each row that a mask selects, 0 if there are none."""

import numpy as np
import tensorflow as tf

from ops import Array, Input, Tensor
from tests.gradcheck.wrong.making import BOTH, MATRIX, rows


def row_masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    weight = tf.cast(mask, x.dtype)
    return tf.math.divide_no_nan(tf.reduce_sum(weight * tf.exp(x), axis=-1), tf.reduce_sum(weight, axis=-1))


def reference(x: Array, mask: Array) -> Array:
    return np.where(mask, np.exp(x), 0).sum(-1) / np.maximum(1, mask.sum(-1))


MASK = Input("mask", ("bool",), MATRIX, differentiable=False)
OP = rows(row_masked_mean, reference, inputs=[Input("x", BOTH, MATRIX), MASK], dtypes=BOTH, out=("N",))
