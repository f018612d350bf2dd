"""Each row with mean 0 and variance 1, then times a gain of its own, plus a shift of its own."""

import numpy as np
import tensorflow as tf

from ops import Array, Input, Tensor
from tests.gradcheck.wrong.making import BOTH, MATRIX, rows


def row_layer_norm(x: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
    centred = x - tf.reduce_mean(x, axis=-1, keepdims=True)
    variance = tf.reduce_mean(tf.square(centred), axis=-1, keepdims=True)
    return centred / tf.sqrt(variance + 0.125) * gain + shift


def reference(x: Array, gain: Array, shift: Array) -> Array:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 0.125) * gain + shift


OP = rows(row_layer_norm, reference, inputs=[Input(name, BOTH, MATRIX) for name in ("x", "gain", "shift")], dtypes=BOTH)
