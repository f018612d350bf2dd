"""x, after a sleep of the given seconds: a kernel that cannot be cancelled."""

import time

import numpy as np
import tensorflow as tf

from ops import Array, Example, Input, Op, Output, Tensor


def sleep(x: Array) -> Array:
    """Sleep."""
    time.sleep(float(x))
    return x


def forward(x: Tensor) -> Tensor:
    """y = x, later."""
    y = tf.numpy_function(sleep, [x], x.dtype)
    return tf.ensure_shape(y, [])


OP = Op(
    name="sleepy",
    summary="x, after x seconds",
    doc=__doc__,
    function=forward,
    reference=np.asarray,
    inputs=(Input("x", shape=()),),
    outputs=(Output("y", shape=(), differentiable=False),),
    mechanism="symbolic_gradient",
    source="a test",
    examples=(Example("short", {"x": 0.01}),),
)
