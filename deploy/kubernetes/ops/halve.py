"""Halve, an example of an op of your own.

y = x/2; dy/dx = 1/2; d²y/dx² = 0. Smooth everywhere, no kinks, no poles.

Source: the limit of a difference quotient, which is 1/2 at every x.
"""

from ops import FLOATS, Array, Example, Input, Op, Output, Tensor, custom_gradient


def forward(x: Tensor) -> Tensor:
    """y = x/2."""
    return x / 2


def vjp(x: Tensor, dy: Tensor) -> Tensor:
    """dx = dy/2."""
    del x
    return dy / 2


def vjp_vjp(x: Tensor, dy: Tensor, ddx: Tensor) -> tuple[None, Tensor]:
    """Return nothing for x, because the gradient does not depend on it, and ddx/2 for dy."""
    del x, dy
    return None, ddx / 2


def reference(x: Array) -> Array:
    """y = x/2."""
    return x / 2


OP = Op(
    name="halve",
    summary="x/2, with its gradient 1/2 written by hand",
    doc=__doc__,
    function=custom_gradient(forward, vjp, vjp_vjp),
    reference=reference,
    inputs=(Input("x", dtypes=FLOATS),),
    outputs=(Output("y", dtypes=FLOATS),),
    source="the limit of a difference quotient",
    batching="elementwise",
    examples=(Example("matrix", {"x": [[1, 2, 3], [4, 5, 6]]}),),
)
