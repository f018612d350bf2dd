r"""The quotient of two tensors of one shape, number by number: glue for graphs of ops.

y = a / b; dy/da = 1 / b and dy/db = -a / b²; d²y/da db = -1 / b², d²y/db² = 2 a / b³. b = 0 is a pole.

Source: TensorFlow's own op ``tf.divide``, with its gradient.
"""

import numpy as np

from ops import Array, Example, Input, Op, Output, Tensor


def forward(a: Tensor, b: Tensor) -> Tensor:
    """y = a / b."""
    return a / b


def reference(a: Array, b: Array) -> Array:
    """y = a / b."""
    return np.divide(a, b)


OP = Op(
    name="divide",
    summary="a / b, number by number, for tensors of one shape",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("a"), Input("b", domain=(1.0, 4.0), poles=(0.0,))),
    outputs=(Output("y"),),
    mechanism="register_gradient",
    source="https://www.tensorflow.org/api_docs/python/tf/math/divide",
    batching="elementwise",
    examples=(Example("vectors", {"a": [1.0, -2.0], "b": [2.0, 3.0]}),),
)
