r"""The product of one matrix with vectors, over any number of leading axes: glue for graphs of ops.

y = a x; da = dy xᵀ, summed over the vectors, and dx = aᵀ dy; d²y/da dx is constant, and the others are 0. Smooth
everywhere. An empty sum is 0.

Source: TensorFlow's own op ``tf.linalg.matvec``, with its gradient.
"""

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import tensorflow as tf

from ops import Array, Example, Input, Op, Output, Tensor


def forward(a: Tensor, x: Tensor) -> Tensor:
    """y = a x."""
    return tf.linalg.matvec(a, x)


def reference(a: Array, x: Array) -> Array:
    """y = a x."""
    return np.einsum("mn,...n->...m", np.asarray(a, np.float64), np.asarray(x, np.float64))


def cost(dims: Mapping[str, Any]) -> int:
    """Return the multiply-adds: M N for each vector."""
    return prod(dims["..."]) * dims["M"] * dims["N"]


OP = Op(
    name="matvec",
    summary="the product of a matrix with vectors",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(
        Input("a", shape=("M", "N")),
        Input("x", shape=("...", "N")),
    ),
    outputs=(Output("y", shape=("...", "M")),),
    cost=cost,
    mechanism="register_gradient",
    source="https://www.tensorflow.org/api_docs/python/tf/linalg/matvec",
    examples=(Example("vector", {"a": [[1.0, -2.0, 0.5], [0.5, 3.0, 1.0]], "x": [1.0, 0.5, -1.0]}),),
)
