"""y = x³, whose gradient is 9 % too large."""

import numpy as np

from ops import Array, Example, Input, Op, Output, Tensor, custom_gradient


def forward(x: Tensor) -> Tensor:
    """y = x³."""
    return x * x * x


def vjp(x: Tensor, dy: Tensor) -> Tensor:
    """Return what should be 3 x² dy."""
    return 3.27 * x * x * dy


def reference(x: Array) -> Array:
    """y = x³."""
    return np.asarray(x, np.float64) ** 3


OP = Op(
    name="steep",
    summary="x³, with a gradient that is 9 % too large",
    doc=__doc__,
    function=custom_gradient(forward, vjp),
    reference=reference,
    inputs=(Input("x"),),
    outputs=(Output("y"),),
    mechanism="custom_gradient",
    source="a test",
    batching="elementwise",
    examples=(Example("three", {"x": [1.0, 2.0, 3.0]}),),
)
