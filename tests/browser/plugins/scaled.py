"""y = w x + b, whose w and b the server has."""

import numpy as np

from ops import Example, Input, Op, Output, Parameter, Tensor


def forward(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """y = w x + b."""
    return w * x + b


OP = Op(
    name="scaled",
    summary="w x + b",
    doc=__doc__,
    function=forward,
    inputs=(Input("x", dtypes=("float32",), shape=("N",)),),
    outputs=(Output("y", dtypes=("float32",), shape=("N",)),),
    parameters=(Parameter("w", np.float32(3)), Parameter("b", np.float32(1))),
    source="tests of the explorer",
    examples=(Example("two", {"x": [1.0, 2.0]}),),
)
