r"""The cast to float64: glue for graphs of ops.

y = x, which is exact for floats; dx = dy, in the dtype of x; the second order is 0. Smooth everywhere. Integers are
rounded to float64, and have no gradient.

Source: TensorFlow's own op ``tf.cast``, with its gradient.
"""

import numpy as np
import tensorflow as tf

from ops import FLOATS, INTEGERS, Array, Example, Input, Op, Output, Tensor


def forward(x: Tensor) -> Tensor:
    """y = x, as float64."""
    return tf.cast(x, tf.float64)


def reference(x: Array) -> Array:
    """y = x, as float64."""
    return np.asarray(x, np.float64)


OP = Op(
    name="cast_float64",
    summary="the cast to float64",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("x", dtypes=FLOATS + INTEGERS),),
    outputs=(Output("y", dtypes=("float64",)),),
    mechanism="register_gradient",
    source="https://www.tensorflow.org/api_docs/python/tf/cast",
    batching="elementwise",
    examples=(Example("vector", {"x": [1, -2, 3]}),),
)
