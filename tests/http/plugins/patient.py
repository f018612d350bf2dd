"""Σ x³ + c x, whose forward pass takes 20 ms: it is worth keeping."""

import time

import numpy as np
import tensorflow as tf
from pydantic import Field

from ops import Array, Attrs, Example, Input, Op, Output, Tensor


class Slope(Attrs):
    """The slope of the linear term."""

    c: float = Field(default=0.5, description="c")


def _wait(x: Array) -> Array:
    time.sleep(0.02)
    return x * x


def forward(x: Tensor, *, c: Tensor) -> Tensor:
    """y = x³ + c x."""
    square = tf.ensure_shape(tf.numpy_function(_wait, [tf.stop_gradient(x)], x.dtype), x.shape)
    # The square has a value from NumPy, and the gradient of x².
    return (square + x * x - tf.stop_gradient(x * x)) * x + c * x


def reference(x: Array, *, c: float) -> Array:
    """y = x³ + c x."""
    return np.asarray(x**3 + c * x)


OP = Op(
    name="patient",
    summary="x³ + c x, after 20 ms",
    doc=__doc__,
    function=forward,
    reference=reference,
    attrs=Slope,
    inputs=(Input("x", dtypes=("float64", "float32"), shape=("n",)),),
    outputs=(Output("y", dtypes=("float64", "float32"), shape=("n",)),),
    mechanism="symbolic_gradient",
    source="a test",
    modes=("graph", "eager"),
    examples=(Example("three", {"x": [0.5, -1.0, 2.0]}),),
)
