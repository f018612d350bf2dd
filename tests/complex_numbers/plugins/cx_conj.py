"""cx_conj: TensorFlow's own gradient."""

import numpy as np
import tensorflow as tf

from pullback.ops import Example, Input, Op, Output


def forward(z):
    return tf.math.conj(z)


def reference(z):
    return np.conj(z)


OP = Op(
    name="cx_conj",
    summary="cx_conj",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("z", ("complex64", "complex128"), ("...",)),),
    outputs=(Output("w", ("complex64", "complex128"), ("...",)),),
    source=__file__,
    examples=(Example("one", {"z": [[1, 2], [0.5, -1]]}),),
    batching="elementwise",
)
