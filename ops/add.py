r"""The sum of two tensors of one shape: glue for graphs of ops.

y = a + b; dy/da = dy/db = 1; the second order is 0. Smooth everywhere.

Source: TensorFlow's own op ``tf.add``, with its gradient.
"""

import numpy as np

from ops import Array, Example, Input, Op, Output, Tensor


def forward(a: Tensor, b: Tensor) -> Tensor:
    """y = a + b."""
    return a + b


def reference(a: Array, b: Array) -> Array:
    """y = a + b."""
    return np.add(a, b)


OP = Op(
    name="add",
    summary="a + b, for tensors of one shape",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("a"), Input("b")),
    outputs=(Output("y"),),
    mechanism="register_gradient",
    source="https://www.tensorflow.org/api_docs/python/tf/math/add",
    batching="elementwise",
    examples=(Example("vectors", {"a": [1.0, -2.0], "b": [0.5, 3.0]}),),
)
