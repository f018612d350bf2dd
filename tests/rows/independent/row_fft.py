"""The power of each frequency of each row."""

import numpy as np
import tensorflow as tf

from ops import Array, Input, Tensor
from tests.gradcheck.wrong.making import BOTH, rows


def row_fft(x: Tensor) -> Tensor:
    spectrum = tf.signal.rfft(x)
    return tf.square(tf.math.real(spectrum)) + tf.square(tf.math.imag(spectrum))


def reference(x: Array) -> Array:
    return np.abs(np.fft.rfft(x)) ** 2


OP = rows(row_fft, reference, inputs=[Input("x", BOTH, ("N", 8))], dtypes=BOTH, out=("N", 5))
