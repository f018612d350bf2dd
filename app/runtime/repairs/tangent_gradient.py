"""A correction of TensorFlow's gradient of the complex tangent, which is NaN far from the real axis from order 2 on.

TensorFlow 2.21 computes 1/cos(z)², where the cosine overflows. There it is 4w/(1 + w)² here, with w = exp(2iz) in the
upper half plane and exp(-2iz) in the lower one, which underflows.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import tensorflow as tf

# Private, because the public API cannot replace a gradient.
from tensorflow.python.framework.ops import gradient_registry

from ops import Tensor

Gradient: TypeAlias = Callable[..., Tensor]

KERNEL, _ENTRY = "Tan", "type"
# How far from the real axis w is used: nearer, 1 + w is 0 at the poles.
FAR = 1.0


def install() -> None:
    """Replace the gradient, for complex numbers only; call this before any program is built."""
    entry = gradient_registry._registry[KERNEL]
    if not hasattr(entry[_ENTRY], "__wrapped__"):
        entry[_ENTRY] = _corrected(entry[_ENTRY])


def _corrected(gradient: Gradient) -> Gradient:
    def corrected(node: Any, dy: Tensor) -> Tensor:
        x: Tensor = node.inputs[0]
        return dy * _squared_secant(tf.math.conj(x)) if x.dtype.is_complex else gradient(node, dy)

    corrected.__wrapped__ = gradient  # pyright: ignore[reportFunctionMemberAccess] - marks that it is installed
    return corrected


def _squared_secant(z: Tensor) -> Tensor:
    """Return 1/cos(z)²; each of two formulas gets only the numbers for which it holds, at every order."""
    height, i = tf.math.imag(z), tf.constant(1j, z.dtype)
    is_far = tf.abs(height) > FAR
    near, upper = tf.where(is_far, tf.zeros_like(z), z), tf.where(height > 0, z, -z)
    w = tf.square(tf.exp(i * tf.where(is_far, upper, i)))
    # Not by reciprocals: XLA's gradient of a complex one is wrong.
    return tf.where(is_far, 4 * w / tf.square(1 + w), 1 / tf.square(tf.cos(near)))
