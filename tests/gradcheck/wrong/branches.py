"""Branches taken on the wrong side: branch cuts, signs of negative numbers, wrapped angles, conditions of the trace."""

from typing import Any

import numpy as np
import tensorflow as tf

from ops import Input, Output, custom_gradient
from tests.gradcheck.planting import Planted
from tests.gradcheck.wrong.making import BOTH, WIDE, elementwise, made, rows

FIRST = ("derivative",)
VALUE = ("value",)
PI = float(np.pi)


def bearing(x, w):
    """The arc tangent of a quotient, which knows no left half-plane."""
    return tf.math.atan(w / x)


def bearing_vjp(x, w, dy):
    square = x * x + w * w
    return -w * dy / square, x * dy / square


def angle(y, x):
    return tf.math.atan2(y, x)


def angle_vjp(y, x, dy):
    """In the left half-plane, the slopes have the sign of the right one."""
    square = x * x + y * y
    return tf.abs(x) * dy / square, -y * dy / square


def log_size_vjp(x, dy):
    """The slope of log|x| is positive on both sides."""
    return dy / tf.abs(x)


def log_size(x):
    return tf.math.log(tf.abs(x))


def log_square(x):
    """2 log x, which is NaN where x² has a logarithm."""
    return 2 * tf.math.log(x)


def modulus(re, im):
    return tf.abs(tf.complex(re, im))


def modulus_vjp(re, im, dy):
    """The imaginary part is that of the conjugate."""
    unit = dy / modulus(re, im)
    return re * unit, -im * unit


def root(x):
    return tf.sign(x) * tf.pow(tf.abs(x), 1 / 3)


def root_vjp(x, dy):
    """A power of a negative number is NaN."""
    return dy * tf.pow(x, -2 / 3) / 3


def cubed(x):
    """The power of |x| forgets the sign."""
    return tf.pow(tf.abs(x), 3)


def powered(x):
    return tf.abs(x) * x * x


def powered_vjp(x, dy):
    """The slope of |x|³ has lost the sign of x."""
    return dy * 3 * x * x


def two_sided(x):
    return tf.where(x > 1, tf.sin(x), x * x)


def two_sided_vjp(x, dy):
    """The gradient changes sides at 0.7 in place of 1."""
    return dy * tf.where(x > 0.7, tf.cos(x), 2 * x)


def folded(x):
    return tf.math.acos(0.999 * tf.cos(x))


def folded_vjp(x, dy):
    """The principal branch of the sine: the slope is positive everywhere."""
    c = 0.999 * tf.cos(x)
    return dy * 0.999 * tf.abs(tf.sin(x)) / tf.sqrt(1 - c * c)


def turned(x, w):
    """d²/2, where d is the angle from w to x, in [-π, π)."""
    d = tf.math.floormod(x - w + PI, 2 * PI) - PI
    return d * d / 2


def turned_vjp(x, w, dy):
    """The gradient does not wrap the angle around."""
    return (x - w) * dy, (w - x) * dy


def remainder(x):
    """x modulo 2, with the sign of x."""
    quotient = x / 2
    whole = tf.sign(quotient) * tf.floor(tf.abs(quotient))
    return x - 2 * tf.stop_gradient(whole)


def averaged(x):
    return tf.reduce_mean(x * x, axis=-1)


def averaged_vjp(x, dy):
    """A trace that does not know the length takes it for 1."""
    length = x.shape[-1] or 1
    return 2 * x * tf.expand_dims(dy, -1) / length


def eager_vjp(x, dy):
    """Eager mode takes a shortcut that is off by a millionth."""
    slope = tf.cos(x)
    return dy * (slope * (1 + 1e-6) if tf.executing_eagerly() else slope)


def traced(x):
    """A graph rounds the result as a table of 20 bits would; eager mode does not."""
    y = tf.sin(x)
    return y + 2.0**-20 * tf.cos(x) if tf.inside_function() else y


def known_rank(x):
    return tf.sin(x) * tf.cos(2 * x)


def known_rank_vjp(x, dy):
    """With a known rank, as in eager mode, the second term is lost."""
    slope = tf.cos(x) * tf.cos(2 * x)
    return dy * (slope - 2 * tf.sin(x) * tf.sin(2 * x) if x.shape.rank is None else slope)


def centred_vjp(x, dy):
    """With three axes, as only eager mode knows, the mean is that over two."""
    axes = [-1, -2] if x.shape.rank == 3 else [-1]
    return dy - tf.reduce_mean(dy, axis=axes, keepdims=True)


def masked(x, mask):
    return tf.where(mask, tf.sqrt(1 + x * x), x)


def masked_vjp(x, mask, dy):
    """The mask is inverted only for negative numbers."""
    chosen = tf.where(x < 0, tf.logical_not(mask), mask)
    return dy * tf.where(chosen, x / tf.sqrt(1 + x * x), tf.ones_like(x)), None


def masked_reference(x, mask):
    return np.where(mask, np.sqrt(1 + x**2), x)


def ratio_of_zeros(x):
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
CUBED, POWERED = custom_gradient(cubed, lambda x, dy: dy * 3 * x * tf.abs(x)), custom_gradient(powered, powered_vjp)
TWO_SIDED, FOLDED = custom_gradient(two_sided, two_sided_vjp), custom_gradient(folded, folded_vjp)
TURNED, AVERAGED = custom_gradient(turned, turned_vjp), custom_gradient(averaged, averaged_vjp)
EAGER, KNOWN_RANK = custom_gradient(tf.sin, eager_vjp), custom_gradient(known_rank, known_rank_vjp)
BEARING = custom_gradient(bearing, bearing_vjp)
MASKED = (Input("x", WIDE), Input("mask", ("bool",), differentiable=False))
Z = (Output("z", WIDE),)

OPS: dict[str, Planted] = {
    "an angle of the right half-plane alone": Planted(
        elementwise(BEARING, lambda x, w: np.arctan2(w, x), slot=AWAY, **TWO), VALUE
    ),
    "slopes of the right half-plane": Planted(
        elementwise(ANGLE, np.arctan2, name="half_plane", names=("y", "x"), outputs=Z, slot=AWAY), FIRST
    ),
    "a slope that is positive on both sides": Planted(
        elementwise(LOG_SIZE, lambda x: np.log(np.abs(x)), slot=AWAY), FIRST
    ),
    "the logarithm of a negative number": Planted(
        elementwise(log_square, lambda x: np.log(x**2), slot=AWAY), ("value", "finite")
    ),
    "the conjugate of a complex number": Planted(
        elementwise(MODULUS, np.hypot, names=("re", "im"), slot=POSITIVE), FIRST
    ),
    "a root of negative numbers": Planted(elementwise(ROOT, np.cbrt, dtypes=BOTH, slot=AWAY), ("derivative", "finite")),
    "a power without its sign": Planted(elementwise(CUBED, lambda x: x**3, dtypes=BOTH), VALUE),
    "the slope of a power without its sign": Planted(elementwise(POWERED, lambda x: np.abs(x) ** 3), FIRST),
    "a condition on the wrong side of 1": Planted(
        elementwise(TWO_SIDED, lambda x: np.where(x > 1, np.sin(x), x**2), slot=AT_1), FIRST
    ),
    "a principal branch": Planted(
        elementwise(FOLDED, lambda x: np.arccos(0.999 * np.cos(x)), slot={"domain": (0.0, 6.0)}), FIRST
    ),
    "an angle that is not wrapped around": Planted(
        elementwise(TURNED, lambda x, w: ((x - w + np.pi) % (2 * np.pi) - np.pi) ** 2 / 2, **TWO), FIRST
    ),
    "a remainder with the sign of x": Planted(elementwise(remainder, lambda x: np.mod(x, 2), slot=EVEN), VALUE),
    "a length that a trace does not know": Planted(
        rows(AVERAGED, lambda x: (x**2).mean(-1), out=("N",)), ("derivative", "modes")
    ),
    "a shortcut in eager mode": Planted(elementwise(EAGER, np.sin, name="eager_shortcut"), ("modes",)),
    "another value in graphs": Planted(elementwise(traced, np.sin), ("modes", "value")),
    "a term lost where the rank is known": Planted(
        elementwise(KNOWN_RANK, lambda x: np.sin(x) * np.cos(2 * x)), ("modes",)
    ),
    "a mean over two axes where three are known": Planted(
        made(
            custom_gradient(lambda x: x - tf.reduce_mean(x, axis=-1, keepdims=True), centred_vjp),
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
