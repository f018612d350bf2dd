r"""The transpose of matrices, over any number of leading axes: glue for graphs of ops.

y = xᵀ; dx = dyᵀ; the second order is 0. Smooth everywhere.

Source: TensorFlow's own op ``tf.linalg.matrix_transpose``, with its gradient.
"""

import numpy as np
import tensorflow as tf

from ops import Array, Example, Input, Op, Output, Tensor


def forward(x: Tensor) -> Tensor:
    """y = xᵀ."""
    return tf.linalg.matrix_transpose(x)


def reference(x: Array) -> Array:
    """y = xᵀ."""
    return np.swapaxes(x, -1, -2)


OP = Op(
    name="transpose",
    summary="the transpose of matrices",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("x", shape=("...", "M", "N")),),
    outputs=(Output("y", shape=("...", "N", "M")),),
    batching="leading_axes",
    mechanism="register_gradient",
    source="https://www.tensorflow.org/api_docs/python/tf/linalg/matrix_transpose",
    examples=(Example("matrix", {"x": [[1.0, -2.0, 0.5], [0.5, 3.0, 1.0]]}),),
)
