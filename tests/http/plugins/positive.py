"""The identity, with a value check in the graph."""

import numpy as np
import tensorflow as tf

from ops import Example, Input, Op, Output, Tensor


def forward(x: Tensor) -> Tensor:
    """y = x, for x > 0."""
    with tf.control_dependencies([tf.debugging.assert_positive(x, message="x must be positive")]):
        return tf.identity(x)


OP = Op(
    name="positive",
    summary="x, which must be positive",
    doc=__doc__,
    function=forward,
    reference=np.asarray,
    inputs=(Input("x"),),
    outputs=(Output("y"),),
    mechanism="symbolic_gradient",
    source="a test",
    examples=(Example("two", {"x": [1.0, 2.0]}),),
)
