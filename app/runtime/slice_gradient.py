"""A gradient that TensorFlow lacks: under XLA, those of ``tf.slice`` and ``tf.concat`` have none of their own.

TensorFlow 2.21 computes them there by the kernel ``XlaDynamicUpdateSlice``, and registers no gradient for it.
"""

from contextlib import suppress
from functools import cache

import tensorflow as tf

# Private, because the kernel has no public function.
from tensorflow.compiler.tf2xla.ops.gen_xla_ops import xla_dynamic_update_slice

from ops import Tensor

KERNEL = "XlaDynamicUpdateSlice"


@cache
def register() -> None:
    """Register the gradient, once in a process, unless a page has registered one."""
    with suppress(KeyError):
        tf.RegisterGradient(KERNEL)(gradient)


def gradient(op: tf.Operation, dy: Tensor) -> tuple[Tensor, Tensor, None]:
    """Return dx, which is dy outside of the part that is replaced, and the part of dy that belongs to it."""
    _, part, begin = op.inputs
    dx = xla_dynamic_update_slice(dy, tf.zeros_like(part), begin)
    return dx, tf.slice(dy, begin, tf.shape(part, begin.dtype)), None
