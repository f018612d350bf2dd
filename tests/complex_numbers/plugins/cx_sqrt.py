"""cx_sqrt: TensorFlow's own gradient."""

import numpy as np
import tensorflow as tf

from pullback.ops import Example, Input, Op, Output


def forward(z):
    return tf.sqrt(z)


def reference(z):
    return np.sqrt(z)


OP = Op(
    name="cx_sqrt",
    summary="cx_sqrt",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("z", ("complex64", "complex128"), domain=(0.5, 3.0)),),
    outputs=(Output("w", ("complex64", "complex128"), ("...",)),),
    source=__file__,
    examples=(Example("one", {"z": [[1, 2], [0.5, 1]]}),),
    batching="elementwise",
    holomorphic=True,
    modes=("graph", "eager", "v1"),
)
