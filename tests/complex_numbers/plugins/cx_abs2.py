"""cx_abs2: TensorFlow's own gradient."""

import numpy as np
import tensorflow as tf

from pullback.ops import Example, Input, Op, Output


def forward(z):
    return tf.math.real(z * tf.math.conj(z))


def reference(z):
    return np.abs(z) ** 2


OP = Op(
    name="cx_abs2",
    summary="cx_abs2",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("z", ("complex64", "complex128"), ("...",)),),
    outputs=(Output("w", ("float32", "float64"), ("...",)),),
    source=__file__,
    examples=(Example("one", {"z": [[1, 2], [0.5, -1]]}),),
    batching="elementwise",
)
