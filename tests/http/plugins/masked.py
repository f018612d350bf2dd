"""y = x where the mask is true, else 0; dy/dx = 1 there, else 0. Masked elements are ignored, NaN or not."""

import numpy as np
import tensorflow as tf

from ops import Array, Example, Input, Op, Output, Tensor, custom_gradient


def forward(x: Tensor, mask: Tensor) -> Tensor:
    """y = x, or 0."""
    return tf.where(mask, x, tf.zeros_like(x))


def vjp(x: Tensor, mask: Tensor, dy: Tensor) -> tuple[Tensor, None]:
    """dx = dy, or 0; the mask has none."""
    return tf.where(mask, dy, tf.zeros_like(dy)), None


def reference(x: Array, mask: Array) -> Array:
    """y = x, or 0."""
    y = np.zeros_like(x)
    y[mask] = x[mask]
    return y


OP = Op(
    name="masked",
    summary="x where a mask is true, else 0",
    doc=__doc__,
    function=custom_gradient(forward, vjp),
    reference=reference,
    inputs=(Input("x"), Input("mask", dtypes=("bool",), differentiable=False)),
    outputs=(Output("y"),),
    mechanism="custom_gradient",
    source="a test",
    batching="elementwise",
    examples=(Example("three", {"x": [1.5, -2.0, 3.0], "mask": [True, False, True]}),),
)
