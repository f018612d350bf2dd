"""y = |x|, and x < 0 as bools; dy/dx = sign(x), a kink at 0."""

import numpy as np
import tensorflow as tf

from ops import Array, Example, Input, Op, Output, Tensor


def forward(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return |x| and x < 0."""
    return tf.abs(x), x < 0


def reference(x: Array) -> tuple[Array, Array]:
    """Return |x| and x < 0."""
    return np.maximum(x, -x), np.less(x, 0)


OP = Op(
    name="parted",
    summary="|x|, and where x is negative",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("x", kinks=(0.0,)),),
    outputs=(Output("y"), Output("negative", dtypes=("bool",), differentiable=False)),
    mechanism="symbolic_gradient",
    source="a test",
    batching="elementwise",
    examples=(Example("three", {"x": [1.5, -2.0, 3.0]}),),
)
