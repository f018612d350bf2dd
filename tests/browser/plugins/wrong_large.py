"""Σ x², whose gradient is 3 x dy, and wrong, for more than 1,000 numbers alone."""

import numpy as np
import tensorflow as tf

from ops import Example, Input, Op, Output, Tensor


@tf.custom_gradient
def function(x: Tensor):
    """y = Σ x²."""

    def vjp(dy: Tensor) -> Tensor:
        return tf.where(tf.size(x) > 1000, tf.cast(3, x.dtype), tf.cast(2, x.dtype)) * x * dy

    return tf.reduce_sum(x * x), vjp


OP = Op(
    name="wrong_large",
    summary="Σ x², whose gradient is wrong for many numbers",
    doc=__doc__,
    function=function,
    inputs=(Input("x", shape=("N",)),),
    outputs=(Output("y", shape=()),),
    mechanism="custom_gradient",
    source="tests of the explorer",
    examples=(Example("large", {"x": np.linspace(0.5, 2.0, 2000).tolist()}),),
)
