"""The softmax, whose outputs sum to 1."""

import numpy as np
import tensorflow as tf

from ops import Array, Example, Input, Op, Output, Tensor


def function(z: Tensor) -> Tensor:
    """p = softmax(z)."""
    return tf.nn.softmax(z)


def reference(z: Array) -> Array:
    """p = softmax(z)."""
    e = np.exp(z - np.max(z, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


OP = Op(
    name="shares",
    summary="softmax",
    doc=__doc__,
    function=function,
    reference=reference,
    inputs=(Input("z", shape=("N", "C")),),
    outputs=(Output("p", shape=("N", "C")),),
    mechanism="composition",
    source="tests of the explorer",
    examples=(Example("two", {"z": [[1.0, 0.5, -1.0], [0.0, 2.0, 1.0]]}),),
)
