"""cx_irfft: TensorFlow's own gradient."""

import numpy as np
import tensorflow as tf

from pullback.ops import Example, Input, Op, Output


def forward(z):
    return tf.signal.irfft(z, [4])


def reference(z):
    return np.fft.irfft(z, 4)


OP = Op(
    name="cx_irfft",
    summary="cx_irfft",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("z", ("complex64", "complex128"), (3,)),),
    outputs=(Output("w", ("float32", "float64"), (4,)),),
    source=__file__,
    examples=(Example("one", {"z": [[1, 0], [0.5, -1], [3, 0]]}),),
)
