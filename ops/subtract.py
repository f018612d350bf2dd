r"""The difference of two tensors of one shape: glue for graphs of ops.

y = a - b; dy/da = 1 and dy/db = -1; the second order is 0. Smooth everywhere.

Source: TensorFlow's own op ``tf.subtract``, with its gradient.
"""

import numpy as np

from ops import Array, Example, Input, Op, Output, Tensor


def forward(a: Tensor, b: Tensor) -> Tensor:
    """y = a - b."""
    return a - b


def reference(a: Array, b: Array) -> Array:
    """y = a - b."""
    return np.subtract(a, b)


OP = Op(
    name="subtract",
    summary="a - b, for tensors of one shape",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("a"), Input("b")),
    outputs=(Output("y"),),
    mechanism="register_gradient",
    source="https://www.tensorflow.org/api_docs/python/tf/math/subtract",
    batching="elementwise",
    examples=(Example("vectors", {"a": [1.0, -2.0], "b": [0.5, 3.0]}),),
)
