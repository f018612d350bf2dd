"""Square roots of complex numbers that do not depend on the place of a number in its array.

TensorFlow 2.21 computes several at a time, and those at the end of an array one by one, by another formula: the root of
-1 - 0i is -i, and i at the end. All are computed several at a time here, as XLA does.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

# Private, because TensorFlow's own functions, such as the gradient of ``tf.asin``, call it there.
from tensorflow.python.ops import gen_math_ops

from ops import Tensor

# A multiple of how many numbers any processor computes at a time.
TOGETHER, HALF = 64, 0.5


def install() -> None:
    """Replace the square root, for complex numbers only; call this before any program is built."""
    if not hasattr(gen_math_ops.sqrt, "__wrapped__"):
        gen_math_ops.sqrt = _padded(gen_math_ops.sqrt)
        kernels: Any = gen_math_ops
        kernels._pow = _without_roots(kernels._pow, kernels.sqrt)
        raw: Any = tf.raw_ops
        raw.Sqrt, raw.Pow = kernels.sqrt, kernels._pow


def _padded(sqrt: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def padded(x: Any, name: str | None = None) -> Tensor:
        z = tf.convert_to_tensor(x)
        if not z.dtype.is_complex:
            return sqrt(x, name=name)
        flat = tf.reshape(z, [-1])
        count = tf.size(flat)
        ones = tf.ones([tf.math.floormod(-count, TOGETHER)], z.dtype)
        return tf.ensure_shape(tf.reshape(sqrt(tf.concat([flat, ones], 0), name=name)[:count], tf.shape(z)), z.shape)

    padded.__wrapped__ = sqrt  # pyright: ignore[reportFunctionMemberAccess] - marks that this is installed
    return padded


def _without_roots(power: Callable[..., Tensor], sqrt: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a power that is the root for a constant exponent of 1/2: in a graph, TensorFlow makes one of it later."""

    def mended(x: Any, y: Any, name: str | None = None) -> Tensor:
        if not tf.executing_eagerly() and (z := tf.convert_to_tensor(x)).dtype.is_complex:
            y = tf.convert_to_tensor(y, z.dtype)
            exponent = tf.get_static_value(y)
            if exponent is not None and (exponent == HALF).all():
                return sqrt(tf.broadcast_to(z, tf.broadcast_dynamic_shape(tf.shape(z), tf.shape(y))), name=name)
        return power(x, y, name=name)

    return mended
