"""y = x², beside a count that no float64 holds."""

import numpy as np
import tensorflow as tf

from ops import Array, Example, Input, Op, Output, Tensor

COUNT = 2**53 + 1


def function(x: Tensor) -> tuple[Tensor, Tensor]:
    """y = x², and the count."""
    return x * x, tf.constant(COUNT, tf.int64)


def reference(x: Array) -> tuple[Array, Array]:
    """y = x², and the count."""
    return np.asarray(x * x), np.asarray(COUNT)


OP = Op(
    name="counted",
    summary="x², and a count beyond 2^53",
    doc=__doc__,
    function=function,
    reference=reference,
    inputs=(Input("x", shape=("N",)),),
    outputs=(Output("y", shape=("N",)), Output("count", dtypes=("int64",), shape=())),
    mechanism="composition",
    source="tests of the explorer",
    examples=(Example("two", {"x": [1.0, 2.0]}),),
)
