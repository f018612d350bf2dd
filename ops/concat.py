r"""Two tensors, one behind the other along the last axis: glue for graphs of ops.

y = (a, b); da and db are the parts of dy; the second order is 0. Smooth everywhere.

Source: TensorFlow's own op ``tf.concat``, with its gradient.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from ops import Array, Example, Input, Op, Output, Tensor


def forward(a: Tensor, b: Tensor) -> Tensor:
    """y = (a, b)."""
    return tf.concat([a, b], axis=-1)


def reference(a: Array, b: Array) -> Array:
    """y = (a, b)."""
    return np.concatenate([a, b], axis=-1)


def sizes(dims: Mapping[str, Any]) -> dict[str, int]:
    """L = M + N."""
    return {"L": dims["M"] + dims["N"]}


OP = Op(
    name="concat",
    summary="two tensors, one behind the other along the last axis",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(
        Input("a", shape=("...", "M")),
        Input("b", shape=("...", "N")),
    ),
    outputs=(Output("y", shape=("...", "L")),),
    batching="leading_axes",
    sizes=sizes,
    mechanism="register_gradient",
    source="https://www.tensorflow.org/api_docs/python/tf/concat",
    examples=(Example("rows", {"a": [[1.0, -2.0], [0.5, 3.0]], "b": [[0.25], [-1.0]]}),),
)
