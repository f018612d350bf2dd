r"""The product of two tensors of one shape, number by number: glue for graphs of ops.

y = a b; dy/da = b and dy/db = a; d²y/da db = 1, and the others are 0. Smooth everywhere.

Source: TensorFlow's own op ``tf.multiply``, with its gradient.
"""

import numpy as np

from ops import Array, Example, Input, Op, Output, Tensor


def forward(a: Tensor, b: Tensor) -> Tensor:
    """y = a b."""
    return a * b


def reference(a: Array, b: Array) -> Array:
    """y = a b."""
    return np.multiply(a, b)


OP = Op(
    name="multiply",
    summary="a b, number by number, for tensors of one shape",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("a"), Input("b")),
    outputs=(Output("y"),),
    mechanism="register_gradient",
    source="https://www.tensorflow.org/api_docs/python/tf/math/multiply",
    batching="elementwise",
    examples=(Example("vectors", {"a": [1.0, -2.0], "b": [0.5, 3.0]}),),
)
