"""w = rfft(x): the half of the spectrum of real numbers."""

import numpy as np
import tensorflow as tf

from pullback.ops import Example, Input, Op, Output


def forward(x):
    return tf.signal.rfft(x)


def reference(x):
    return np.fft.rfft(x)


OP = Op(
    name="cx_rfft",
    summary="rfft",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("x", ("float32", "float64"), (4,)),),
    outputs=(Output("w", ("complex64", "complex128"), (3,)),),
    source=__file__,
    examples=(Example("one", {"x": [1, 2, -0.5, 0.25]}),),
)
