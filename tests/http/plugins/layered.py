"""y = tanh(x w + b), whose weights the server has."""

import numpy as np
import tensorflow as tf

from ops import Array, Example, Input, Op, Output, Parameter, Tensor

W = np.array([[0.5, -1.0], [0.25, 0.75], [-0.5, 1.5]])
B = np.array([0.5, 0.0])


def forward(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """y = tanh(x w + b)."""
    return tf.tanh(x @ w + b)


def reference(x: Array, w: Array, b: Array) -> Array:
    """y = tanh(x w + b)."""
    return np.tanh(x @ w + b)


OP = Op(
    name="layered",
    summary="A dense layer",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("x", ("float64",), ("N", 3)),),
    outputs=(Output("y", ("float64",), ("N", 2)),),
    parameters=(Parameter("w", W, doc="the weights"), Parameter("b", B)),
    batching="leading_axis",
    source="a test",
    examples=(Example("one", {"x": [[1.0, 2.0, 3.0]]}),),
)
