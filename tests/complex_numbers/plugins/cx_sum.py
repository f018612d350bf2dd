"""cx_sum: TensorFlow's own gradient."""

import numpy as np
import tensorflow as tf

from pullback.ops import Example, Input, Op, Output


def forward(z):
    return tf.reduce_sum(z * z)


def reference(z):
    return np.sum(z**2)


OP = Op(
    name="cx_sum",
    summary="cx_sum",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("z", ("complex64", "complex128"), ("N",)),),
    outputs=(Output("w", ("complex64", "complex128"), ()),),
    source=__file__,
    examples=(Example("one", {"z": [[1, 2], [0.5, -1]]}),),
    holomorphic=True,
)
