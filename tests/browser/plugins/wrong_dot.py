"""A weighted product whose gradient is wrong for one of its two inputs, and not elementwise.

y = Σ k a b²; da = k b² dy; db = 2 k a b dy, but here 3 k a b dy; the second order is the derivative of that.
"""

from typing import Literal

import numpy as np
import tensorflow as tf

from ops import Array, Attrs, Example, Input, Op, Output, Tensor


class WeightAttrs(Attrs):
    """The weight."""

    k: Literal[2, 5] = 2


def function(a: Tensor, b: Tensor, *, k: int) -> Tensor:
    """y = Σ k a b²."""

    @tf.custom_gradient
    def weighted(a: Tensor, b: Tensor):
        def vjp(dy: Tensor) -> tuple[Tensor, Tensor]:
            return k * b * b * dy, 3 * k * a * b * dy

        return tf.reduce_sum(k * a * b * b), vjp

    return weighted(a, b)


def reference(a: Array, b: Array, *, k: int) -> Array:
    """y = Σ k a b²."""
    return np.sum(k * np.asarray(a, np.float64) * np.asarray(b, np.float64) ** 2)


OP = Op(
    name="wrong_dot",
    summary="Σ k a b², whose gradient for b is wrong",
    doc=__doc__,
    function=function,
    reference=reference,
    inputs=(Input("a", shape=("N",)), Input("b", shape=("N",))),
    outputs=(Output("y", shape=()),),
    attrs=WeightAttrs,
    mechanism="composition",
    source="tests of the explorer",
    examples=(Example("some", {"a": [1.0, 0.5, -1.0], "b": [-2.0, 0.5, 1.0]}),),
)
