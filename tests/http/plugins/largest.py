"""The largest element times 2, and its index, which has no derivative; nothing depends on ``hint``, on purpose."""

import numpy as np
import tensorflow as tf

from ops import Array, Example, Input, Op, Output, Tensor


def forward(x: Tensor, hint: Tensor) -> tuple[Tensor, Tensor]:
    """Return 2 max(x) and its index."""
    return 2 * tf.reduce_max(x), tf.argmax(x, output_type=tf.int32)


def reference(x: Array, hint: Array) -> tuple[Array, Array]:
    """Return 2 max(x) and its index."""
    return 2 * np.max(x), np.argmax(x).astype(np.int32)


OP = Op(
    name="largest",
    summary="2 max(x), and where it is",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("x", shape=("N",)), Input("hint", shape=())),
    outputs=(Output("y", shape=()), Output("index", dtypes=("int32",), shape=(), differentiable=False)),
    mechanism="symbolic_gradient",
    source="a test",
    null_gradients=("hint",),
    examples=(Example("three", {"x": [1.0, 3.0, 2.0], "hint": 0.5}),),
)
