r"""All numbers of a tensor as a vector, in row-major order: glue for graphs of ops.

y = x in another shape; dx = dy in the shape of x; the second order is 0. Smooth everywhere.

Source: TensorFlow's own op ``tf.reshape``, with its gradient.
"""

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import tensorflow as tf

from ops import Array, Example, Input, Op, Output, Tensor


def forward(x: Tensor) -> Tensor:
    """y = x, as a vector."""
    return tf.reshape(x, [-1])


def reference(x: Array) -> Array:
    """y = x, as a vector."""
    return np.ravel(x)


def sizes(dims: Mapping[str, Any]) -> dict[str, int]:
    """N is the product of all sizes."""
    return {"N": prod(dims["..."])}


OP = Op(
    name="flatten",
    summary="all numbers of a tensor as a vector",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("x"),),
    outputs=(Output("y", shape=("N",)),),
    sizes=sizes,
    mechanism="register_gradient",
    source="https://www.tensorflow.org/api_docs/python/tf/reshape",
    examples=(Example("matrix", {"x": [[1.0, -2.0, 0.5], [0.5, 3.0, 1.0]]}),),
)
