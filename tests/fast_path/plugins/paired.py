"""p = a x z² and q = x - z: two inputs that are not alike, two outputs and an attribute, element by element."""

import tensorflow as tf

from ops import Array, Attrs, Example, Input, Op, Output, Tensor


class PairedAttrs(Attrs):
    """``a`` scales the product."""

    a: float = 2.0


def forward(x: Tensor, z: Tensor, *, a: Tensor) -> tuple[Tensor, Tensor]:
    """Return a x z² and x - z."""
    return a * x * tf.square(z), x - z


def reference(x: Array, z: Array, *, a: float) -> tuple[Array, Array]:
    """Return a x z² and x - z."""
    return a * x * z * z, x - z


OP = Op(
    name="paired",
    summary="a x z², and x - z",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("x"), Input("z")),
    outputs=(Output("p"), Output("q")),
    attrs=PairedAttrs,
    mechanism="symbolic_gradient",
    source="a test",
    batching="elementwise",
    examples=(Example("three", {"x": [1.0, 2.0, 3.0], "z": [4.0, 5.0, -6.0]}),),
)
