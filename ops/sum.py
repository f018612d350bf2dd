r"""The sum over the last axis: glue for graphs of ops.

y = Σx; dy/dx = 1; the second order is 0. Smooth everywhere. An empty sum is 0.

Source: TensorFlow's own op ``tf.reduce_sum``, with its gradient.
"""

import numpy as np
import tensorflow as tf

from ops import Array, Example, Input, Op, Output, Tensor


def forward(x: Tensor) -> Tensor:
    """y = Σx."""
    return tf.reduce_sum(x, axis=-1)


def reference(x: Array) -> Array:
    """y = Σx."""
    return np.sum(np.asarray(x, np.float64), axis=-1)


OP = Op(
    name="sum",
    summary="the sum over the last axis",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("x", shape=("...", "N")),),
    outputs=(Output("y", shape=("...",)),),
    mechanism="register_gradient",
    source="https://www.tensorflow.org/api_docs/python/tf/math/reduce_sum",
    batching="leading_axes",
    examples=(Example("rows", {"x": [[1.0, -2.0, 0.5], [0.5, 3.0, 1.0]]}),),
)
