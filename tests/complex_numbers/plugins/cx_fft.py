"""cx_fft: TensorFlow's own gradient."""

import numpy as np
import tensorflow as tf

from pullback.ops import Example, Input, Op, Output


def forward(z):
    return tf.signal.fft(z)


def reference(z):
    return np.fft.fft(z)


OP = Op(
    name="cx_fft",
    summary="cx_fft",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("z", ("complex64", "complex128"), ("N",)),),
    outputs=(Output("w", ("complex64", "complex128"), ("N",)),),
    source=__file__,
    examples=(Example("one", {"z": [[1, 2], [0.5, -1], [3, 0]]}),),
    holomorphic=True,
)
