r"""The matrix product, over any number of leading axes: glue for graphs of ops.

y = a b; da = dy bᵀ and db = aᵀ dy; d²y/da db is constant, and the others are 0. Smooth everywhere. An empty sum is 0.

Source: TensorFlow's own op ``tf.matmul``, with its gradient.
"""

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import tensorflow as tf

from ops import Array, Example, Input, Op, Output, Tensor


def forward(a: Tensor, b: Tensor) -> Tensor:
    """y = a b."""
    return tf.matmul(a, b)


def reference(a: Array, b: Array) -> Array:
    """y = a b."""
    return np.matmul(np.asarray(a, np.float64), np.asarray(b, np.float64))


def cost(dims: Mapping[str, Any]) -> int:
    """Return the multiply-adds: M K N of each product."""
    return prod(dims["..."]) * dims["M"] * dims["K"] * dims["N"]


OP = Op(
    name="matmul",
    summary="the product of matrices",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("a", shape=("...", "M", "K")), Input("b", shape=("...", "K", "N"))),
    outputs=(Output("y", shape=("...", "M", "N")),),
    mechanism="register_gradient",
    source="https://www.tensorflow.org/api_docs/python/tf/linalg/matmul",
    cost=cost,
    examples=(Example("product", {"a": [[1.0, -2.0, 0.5]], "b": [[0.5, 3.0], [-1.0, 2.0], [1.5, 1.0]]}),),
)
