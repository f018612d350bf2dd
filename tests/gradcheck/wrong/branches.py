"""Branches taken on the wrong side: branch cuts, signs of negative numbers, wrapped angles, conditions of the trace."""

from typing import Any

import numpy as np
import tensorflow as tf

from ops import Array, Input, Output, Tensor, custom_gradient
from tests.gradcheck.planting import Planted
from tests.gradcheck.wrong.making import BOTH, WIDE, elementwise, made, rows

FIRST = ("derivative",)
VALUE = ("value",)
PI = float(np.pi)


def bearing(x: Tensor, w: Tensor) -> Tensor:
    """The arc tangent of a quotient, which knows no left half-plane."""
    return tf.math.atan(w / x)


def bearing_vjp(x: Tensor, w: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    square = x * x + w * w
    return -w * dy / square, x * dy / square


def bearing_reference(x: Array, w: Array) -> Array:
    return np.arctan2(w, x)


def angle(y: Tensor, x: Tensor) -> Tensor:
    return tf.math.atan2(y, x)


def angle_vjp(y: Tensor, x: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    """In the left half-plane, the slopes have the sign of the right one."""
    square = x * x + y * y
    return tf.abs(x) * dy / square, -y * dy / square


def log_size_vjp(x: Tensor, dy: Tensor) -> Tensor:
    """The slope of log|x| is positive on both sides."""
    return dy / tf.abs(x)


def log_size(x: Tensor) -> Tensor:
    return tf.math.log(tf.abs(x))


def log_size_reference(x: Array) -> Array:
    return np.log(np.abs(x))


def log_square(x: Tensor) -> Tensor:
    """2 log x, which is NaN where x² has a logarithm."""
    return 2 * tf.math.log(x)


def log_square_reference(x: Array) -> Array:
    return np.log(x**2)


def modulus(re: Tensor, im: Tensor) -> Tensor:
    return tf.abs(tf.complex(re, im))


def modulus_vjp(re: Tensor, im: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    """The imaginary part is that of the conjugate."""
    unit = dy / modulus(re, im)
    return re * unit, -im * unit


def root(x: Tensor) -> Tensor:
    return tf.sign(x) * tf.pow(tf.abs(x), 1 / 3)


def root_vjp(x: Tensor, dy: Tensor) -> Tensor:
    """A power of a negative number is NaN."""
    return dy * tf.pow(x, -2 / 3) / 3


def cubed(x: Tensor) -> Tensor:
    """The power of |x| forgets the sign."""
    return tf.pow(tf.abs(x), 3)


def cubed_vjp(x: Tensor, dy: Tensor) -> Tensor:
    return dy * 3 * x * tf.abs(x)


def cubed_reference(x: Array) -> Array:
    return x**3


def powered(x: Tensor) -> Tensor:
    return tf.abs(x) * x * x


def powered_vjp(x: Tensor, dy: Tensor) -> Tensor:
    """The slope of |x|³ has lost the sign of x."""
    return dy * 3 * x * x


def powered_reference(x: Array) -> Array:
    return np.abs(x) ** 3


def two_sided(x: Tensor) -> Tensor:
    return tf.where(x > 1, tf.sin(x), x * x)


def two_sided_vjp(x: Tensor, dy: Tensor) -> Tensor:
    """The gradient changes sides at 0.7 in place of 1."""
    return dy * tf.where(x > 0.7, tf.cos(x), 2 * x)


def two_sided_reference(x: Array) -> Array:
    return np.where(x > 1, np.sin(x), x**2)


def folded(x: Tensor) -> Tensor:
    return tf.math.acos(0.999 * tf.cos(x))


def folded_vjp(x: Tensor, dy: Tensor) -> Tensor:
    """The principal branch of the sine: the slope is positive everywhere."""
    c = 0.999 * tf.cos(x)
    return dy * 0.999 * tf.abs(tf.sin(x)) / tf.sqrt(1 - c * c)


def folded_reference(x: Array) -> Array:
    return np.arccos(0.999 * np.cos(x))


def turned(x: Tensor, w: Tensor) -> Tensor:
    """d²/2, where d is the angle from w to x, in [-π, π)."""
    d = tf.math.floormod(x - w + PI, 2 * PI) - PI
    return d * d / 2


def turned_vjp(x: Tensor, w: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient does not wrap the angle around."""
    return (x - w) * dy, (w - x) * dy


def turned_reference(x: Array, w: Array) -> Array:
    return ((x - w + np.pi) % (2 * np.pi) - np.pi) ** 2 / 2


def remainder(x: Tensor) -> Tensor:
    """x modulo 2, with the sign of x."""
    quotient = x / 2
    whole = tf.sign(quotient) * tf.floor(tf.abs(quotient))
    return x - 2 * tf.stop_gradient(whole)


def remainder_reference(x: Array) -> Array:
    return np.mod(x, 2)


def averaged(x: Tensor) -> Tensor:
    return tf.reduce_mean(x * x, axis=-1)


def averaged_vjp(x: Tensor, dy: Tensor) -> Tensor:
    """A trace that does not know the length takes it for 1."""
    length = x.shape[-1] or 1
    return 2 * x * tf.expand_dims(dy, -1) / length


def averaged_reference(x: Array) -> Array:
    return (x**2).mean(-1)


def eager_vjp(x: Tensor, dy: Tensor) -> Tensor:
    """Eager mode takes a shortcut that is off by a millionth."""
    slope = tf.cos(x)
    return dy * (slope * (1 + 1e-6) if tf.executing_eagerly() else slope)


def traced(x: Tensor) -> Tensor:
    """A graph rounds the result as a table of 20 bits would; eager mode does not."""
    y = tf.sin(x)
    return y + 2.0**-20 * tf.cos(x) if tf.inside_function() else y


def known_rank(x: Tensor) -> Tensor:
    return tf.sin(x) * tf.cos(2 * x)


def known_rank_vjp(x: Tensor, dy: Tensor) -> Tensor:
    """With a known rank, as in eager mode, the second term is lost."""
    slope = tf.cos(x) * tf.cos(2 * x)
    return dy * (slope - 2 * tf.sin(x) * tf.sin(2 * x) if x.shape.rank is None else slope)


def known_rank_reference(x: Array) -> Array:
    return np.sin(x) * np.cos(2 * x)


def centred(x: Tensor) -> Tensor:
    return x - tf.reduce_mean(x, axis=-1, keepdims=True)


def centred_vjp(x: Tensor, dy: Tensor) -> Tensor:
    """With three axes, as only eager mode knows, the mean is that over two."""
    axes = [-1, -2] if x.shape.rank == 3 else [-1]
    return dy - tf.reduce_mean(dy, axis=axes, keepdims=True)


def masked(x: Tensor, mask: Tensor) -> Tensor:
    return tf.where(mask, tf.sqrt(1 + x * x), x)


def masked_vjp(x: Tensor, mask: Tensor, dy: Tensor) -> tuple[Tensor, None]:
    """The mask is inverted only for negative numbers."""
    chosen = tf.where(x < 0, tf.logical_not(mask), mask)
    return dy * tf.where(chosen, x / tf.sqrt(1 + x * x), tf.ones_like(x)), None


def masked_reference(x: Array, mask: Array) -> Array:
    return np.where(mask, np.sqrt(1 + x**2), x)


def ratio_of_zeros(x: Tensor) -> Tensor:
    """tanh x divided by relu x and multiplied by it: NaN where x <= 0; XLA simplifies the gradient to 0."""
    return tf.stop_gradient(tf.tanh(x) / tf.nn.relu(x)) * tf.nn.relu(x)


AWAY: dict[str, Any] = {"poles": (0.0,)}
FROM_0: dict[str, Any] = {"domain": (0.0, 3.0)}
POSITIVE: dict[str, Any] = {"domain": (0.25, 3.0), "poles": (0.0,)}
AT_1: dict[str, Any] = {"kinks": (1.0,)}
EVEN: dict[str, Any] = {"kinks": (-2.0, 0.0, 2.0)}
TWO: dict[str, Any] = {"names": ("x", "w")}
ANGLE, LOG_SIZE = custom_gradient(angle, angle_vjp), custom_gradient(log_size, log_size_vjp)
MODULUS, ROOT = custom_gradient(modulus, modulus_vjp), custom_gradient(root, root_vjp)
CUBED, POWERED = custom_gradient(cubed, cubed_vjp), custom_gradient(powered, powered_vjp)
TWO_SIDED, FOLDED = custom_gradient(two_sided, two_sided_vjp), custom_gradient(folded, folded_vjp)
TURNED, AVERAGED = custom_gradient(turned, turned_vjp), custom_gradient(averaged, averaged_vjp)
EAGER, KNOWN_RANK = custom_gradient(tf.sin, eager_vjp), custom_gradient(known_rank, known_rank_vjp)
BEARING = custom_gradient(bearing, bearing_vjp)
MASKED = (Input("x", WIDE), Input("mask", ("bool",), differentiable=False))
Z = (Output("z", WIDE),)

OPS: dict[str, Planted] = {
    "an angle of the right half-plane alone": Planted(elementwise(BEARING, bearing_reference, slot=AWAY, **TWO), VALUE),
    "slopes of the right half-plane": Planted(
        elementwise(ANGLE, np.arctan2, name="half_plane", names=("y", "x"), outputs=Z, slot=AWAY), FIRST
    ),
    "a slope that is positive on both sides": Planted(elementwise(LOG_SIZE, log_size_reference, slot=AWAY), FIRST),
    "the logarithm of a negative number": Planted(
        elementwise(log_square, log_square_reference, slot=AWAY), ("value", "finite")
    ),
    "the conjugate of a complex number": Planted(
        elementwise(MODULUS, np.hypot, names=("re", "im"), slot=POSITIVE), FIRST
    ),
    "a root of negative numbers": Planted(elementwise(ROOT, np.cbrt, dtypes=BOTH, slot=AWAY), ("derivative", "finite")),
    "a power without its sign": Planted(elementwise(CUBED, cubed_reference, dtypes=BOTH), VALUE),
    "the slope of a power without its sign": Planted(elementwise(POWERED, powered_reference), FIRST),
    "a condition on the wrong side of 1": Planted(elementwise(TWO_SIDED, two_sided_reference, slot=AT_1), FIRST),
    "a principal branch": Planted(elementwise(FOLDED, folded_reference, slot={"domain": (0.0, 6.0)}), FIRST),
    "an angle that is not wrapped around": Planted(elementwise(TURNED, turned_reference, **TWO), FIRST),
    "a remainder with the sign of x": Planted(elementwise(remainder, remainder_reference, slot=EVEN), VALUE),
    "a length that a trace does not know": Planted(
        rows(AVERAGED, averaged_reference, out=("N",)), ("derivative", "modes")
    ),
    "a shortcut in eager mode": Planted(elementwise(EAGER, np.sin, name="eager_shortcut"), ("modes",)),
    "another value in graphs": Planted(elementwise(traced, np.sin), ("modes", "value")),
    "a term lost where the rank is known": Planted(elementwise(KNOWN_RANK, known_rank_reference), ("modes",)),
    "a mean over two axes where three are known": Planted(
        made(
            custom_gradient(centred, centred_vjp),
            lambda x: x - x.mean(axis=-1, keepdims=True),
            (Input("x", WIDE, ("...", "M"), domain=(-3.0, 3.0)),),
            name="centred_where_known",
            outputs=(Output("y", WIDE, ("...", "M")),),
            batching="leading_axes",
        ),
        ("modes",),
    ),
    "a NaN that a compiler loses": Planted(elementwise(ratio_of_zeros, None, slot=FROM_0), ("modes",)),
    "a mask inverted at negative numbers": Planted(
        made(custom_gradient(masked, masked_vjp), masked_reference, MASKED, batching="elementwise"), FIRST
    ),
}
