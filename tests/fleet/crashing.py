"""x, after a crash of the process if `crash` is true: what a fault in an op's kernel, or an assertion in it, does."""

import ctypes

import numpy as np
import tensorflow as tf

from ops import Array, Attrs, Example, Input, Op, Output, Tensor


class CrashingAttrs(Attrs):
    """Whether to crash."""

    crash: bool = False


def read_address_0(x: Array) -> Array:
    """Raise SIGSEGV."""
    ctypes.string_at(0)
    return x


def forward(x: Tensor, *, crash: bool) -> Tensor:
    """y = x."""
    return tf.ensure_shape(tf.numpy_function(read_address_0, [x], x.dtype), []) if crash else tf.identity(x)


def reference(x: Array, *, crash: bool) -> Array:
    """y = x."""
    del crash
    return np.asarray(x)


OP = Op(
    name="crashing",
    summary="x, or a crash",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("x", shape=()),),
    outputs=(Output("y", shape=(), differentiable=False),),
    mechanism="symbolic_gradient",
    source="a test",
    attrs=CrashingAttrs,
    examples=(Example("whole", {"x": 1.0}),),
)
