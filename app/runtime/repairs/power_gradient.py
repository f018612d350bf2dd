"""A correction of TensorFlow's gradient of powers, which is NaN at 0 from the order above the exponent.

The gradient of x⁰ is 0, and TensorFlow 2.21 computes it as 0 · x⁻¹. So the third order of ``tf.pow(x, 2.0)`` was NaN at
0, as was that of ``x ** 2``. Of complex numbers, TensorFlow's 0⁰ is NaN, so the second order was so already.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

# Private, because the public API cannot replace a gradient.
from tensorflow.python.framework.ops import gradient_registry

from ops import Array, Tensor

Gradient: TypeAlias = Callable[..., tuple[Tensor | None, Tensor | None]]

KERNEL, _ENTRY = "Pow", "type"


def install() -> None:
    """Replace the gradient where the exponent is constant; call this before any program is built."""
    entry = gradient_registry._registry[KERNEL]
    if not hasattr(entry[_ENTRY], "__wrapped__"):
        entry[_ENTRY] = _corrected(entry[_ENTRY])


def _corrected(gradient: Gradient) -> Gradient:
    def corrected(node: Any, dy: Tensor) -> tuple[Tensor | None, Tensor | None]:
        dx, dexponent = gradient(node, dy)
        exponent = _constant_exponent(node)
        return (dx if dx is None or exponent is None else _of_base(node.inputs[0], exponent, dy)), dexponent

    corrected.__wrapped__ = gradient  # pyright: ignore[reportFunctionMemberAccess] - marks that it is installed
    return corrected


def _constant_exponent(node: Any) -> Array | None:
    """Return the exponent, if nothing is differentiated with respect to it.

    A tensor of eager mode always has a value; there, the tape says which inputs need no gradient.
    """
    if tf.executing_eagerly() and 1 not in (node.skip_input_indices or ()):
        return None
    value = tf.get_static_value(node.inputs[1])
    return None if value is None else np.asarray(value)


def _of_base(x: Tensor, exponent: Array, dy: Tensor) -> Tensor:
    """Return dy · exponent · x^(exponent - 1), and 0 for an exponent of 0."""
    less = np.where(exponent == 0, exponent, exponent - 1).astype(exponent.dtype)
    power = tf.pow(tf.math.conj(x), _conjugate(less))
    if np.iscomplexobj(less) and not less.all():
        power = tf.where(less == 0, tf.ones_like(power), power)  # TensorFlow's is NaN at 0
    dx = dy * _conjugate(exponent) * power
    if exponent.ndim:
        axes, _ = tf.raw_ops.BroadcastGradientArgs(s0=tf.shape(x), s1=exponent.shape)
        dx = tf.reshape(tf.reduce_sum(dx, axes), tf.shape(x))
    return dx


def _conjugate(exponent: Array) -> Tensor:
    """Return the conjugate as a constant, as which the next order finds it again."""
    return tf.constant(exponent.conj() if np.iscomplexobj(exponent) else exponent)
