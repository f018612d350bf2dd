"""2 x, and a gauge that nothing depends on, on purpose; its tangents and cotangents have different shapes."""

import tensorflow as tf

from ops import Array, Example, Input, Op, Output, Tensor


def forward(x: Tensor, gauge: Tensor) -> Tensor:
    """y = 2x."""
    return tf.add(x, x)


def reference(x: Array, gauge: Array) -> Array:
    """y = 2x."""
    return 2 * x


OP = Op(
    name="offset",
    summary="2 x, whatever the gauge",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("x", shape=("N",)), Input("gauge", shape=("M", 3))),
    outputs=(Output("y", shape=("N",)),),
    mechanism="symbolic_gradient",
    source="a test",
    null_gradients=("gauge",),
    examples=(Example("two", {"x": [1.0, 2.0], "gauge": [[1.0, 2.0, 3.0]]}),),
)
