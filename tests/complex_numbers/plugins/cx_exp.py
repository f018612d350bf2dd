"""cx_exp: TensorFlow's own gradient."""

import numpy as np
import tensorflow as tf

from pullback.ops import Example, Input, Op, Output


def forward(z):
    return tf.exp(z)


def reference(z):
    return np.exp(z)


OP = Op(
    name="cx_exp",
    summary="cx_exp",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("z", ("complex64", "complex128"), ("...",)),),
    outputs=(Output("w", ("complex64", "complex128"), ("...",)),),
    source=__file__,
    examples=(Example("one", {"z": [[1, 2], [0.5, -1]]}),),
    batching="elementwise",
    holomorphic=True,
)
