"""y = x² z²: two inputs, and TensorFlow's own gradient."""

import tensorflow as tf

from ops import Array, Example, Input, Op, Output, Tensor


def forward(x: Tensor, z: Tensor) -> Tensor:
    """y = x² z²."""
    return tf.square(x) * tf.square(z)


def reference(x: Array, z: Array) -> Array:
    """y = x² z²."""
    return x**2 * z**2


OP = Op(
    name="squares",
    summary="x² z²",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("x"), Input("z")),
    outputs=(Output("y"),),
    mechanism="symbolic_gradient",
    source="a test",
    batching="elementwise",
    examples=(Example("one_three", {"x": 1.0, "z": 3.0}),),
)
