r"""The mean over the last axis: glue for graphs of ops.

y = Σx / N; dy/dx = 1 / N; the second order is 0. Smooth everywhere. The mean of nothing is NaN.

Source: TensorFlow's own op ``tf.reduce_mean``, with its gradient.
"""

import numpy as np
import tensorflow as tf

from ops import Array, Example, Input, Op, Output, Tensor


def forward(x: Tensor) -> Tensor:
    """y = Σx / N."""
    return tf.reduce_mean(x, axis=-1)


def reference(x: Array) -> Array:
    """y = Σx / N."""
    return np.sum(np.asarray(x, np.float64), axis=-1) / np.float64(np.shape(x)[-1])


OP = Op(
    name="mean",
    summary="the mean over the last axis",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("x", shape=("...", "N")),),
    outputs=(Output("y", shape=("...",)),),
    batching="leading_axes",
    mechanism="register_gradient",
    source="https://www.tensorflow.org/api_docs/python/tf/math/reduce_mean",
    examples=(Example("rows", {"x": [[1.0, -2.0, 0.5], [0.5, 3.0, 1.0]]}),),
)
