"""p = x² and q = z z: each output depends on one input only, and only a run determines the shape of q."""

import tensorflow as tf

from ops import Array, Example, Input, Op, Output, Tensor


def forward(x: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """Return x² and z, twice."""
    return tf.square(x), tf.concat([z, z], 0)


def reference(x: Array, z: Array) -> tuple[Array, Array]:
    """Return x² and z, twice."""
    return x * x, [*z, *z]


OP = Op(
    name="apart",
    summary="x², and z twice",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("x", shape=("N",)), Input("z", shape=("M",))),
    outputs=(Output("p", shape=("N",)), Output("q", shape=("K",))),
    mechanism="symbolic_gradient",
    source="a test",
    examples=(Example("three_two", {"x": [1.0, 2.0, 3.0], "z": [4.0, 5.0]}),),
)
