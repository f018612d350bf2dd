r"""The cast to float32: glue for graphs of ops.

y = x, which is exact for floats; dx = dy, in the dtype of x; the second order is 0. Smooth everywhere. Integers are
rounded to float32, and have no gradient. Not from float64, whose derivative would be rounded.

Source: TensorFlow's own op ``tf.cast``, with its gradient.
"""

import numpy as np
import tensorflow as tf

from ops import INTEGERS, Array, Example, Input, Op, Output, Tensor


def forward(x: Tensor) -> Tensor:
    """y = x, as float32."""
    return tf.cast(x, tf.float32)


def reference(x: Array) -> Array:
    """y = x, as float32."""
    return np.asarray(x, np.float32)


OP = Op(
    name="cast_float32",
    summary="the cast to float32",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("x", dtypes=("float32", "float16", "bfloat16", *INTEGERS)),),
    outputs=(Output("y", dtypes=("float32",)),),
    mechanism="register_gradient",
    source="https://www.tensorflow.org/api_docs/python/tf/cast",
    batching="elementwise",
    examples=(Example("vector", {"x": [1, -2, 3]}),),
)
