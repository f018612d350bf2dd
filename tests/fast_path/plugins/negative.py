"""x < 0, as bools."""

import numpy as np

from ops import Array, Example, Input, Op, Output, Tensor


def forward(x: Tensor) -> Tensor:
    """Return x < 0."""
    return x < 0


def reference(x: Array) -> Array:
    """Return x < 0."""
    return np.less(x, 0)


OP = Op(
    name="negative",
    summary="whether a number is negative",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("x", differentiable=False),),
    outputs=(Output("y", dtypes=("bool",), differentiable=False),),
    mechanism="custom_gradient",
    source="a test",
    batching="elementwise",
    examples=(Example("some", {"x": [0.5, -1.0]}),),
)
