"""cx_mean: TensorFlow's own gradient."""

import numpy as np
import tensorflow as tf

from pullback.ops import Example, Input, Op, Output


def forward(z):
    return tf.reduce_mean(z * tf.math.conj(z) + z, axis=-1)


def reference(z):
    return np.mean(z * np.conj(z) + z, axis=-1)


OP = Op(
    name="cx_mean",
    summary="cx_mean",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("z", ("complex64", "complex128"), ("N", 3)),),
    outputs=(Output("w", ("complex64", "complex128"), ("N",)),),
    source=__file__,
    examples=(Example("one", {"z": [[[1, 2], [0.5, -1], [0, 1]]]}),),
    batching="leading_axis",
)
