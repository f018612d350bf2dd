"""A cube whose gradient has the factor 2 in place of 3.

y = x³; dy/dx = 3x², but here 2x²; d²y/dx² = 4x, the derivative of that.
"""

import numpy as np

from ops import Array, Example, Input, Op, Output, Tensor, custom_gradient


def forward(x: Tensor) -> Tensor:
    """y = x³."""
    return x * x * x


def vjp(x: Tensor, dy: Tensor) -> Tensor:
    """dx = 2x² dy, which is wrong."""
    return dy * 2 * x * x


def vjp_vjp(x: Tensor, dy: Tensor, ddx: Tensor) -> tuple[Tensor, Tensor]:
    """Return 4x dy ddx for x and 2x² ddx for dy."""
    return 4 * x * dy * ddx, 2 * x * x * ddx


def reference(x: Array) -> Array:
    """y = x³."""
    return np.asarray(x, np.float64) ** 3


OP = Op(
    name="wrong_cube",
    summary="x³, whose gradient is wrong",
    doc=__doc__,
    function=custom_gradient(forward, vjp, vjp_vjp),
    reference=reference,
    inputs=(Input("x"),),
    outputs=(Output("y"),),
    mechanism="custom_gradient",
    source="tests of the explorer",
    batching="elementwise",
    examples=(Example("some", {"x": [-2.0, 0.5, 1.0]}),),
)
