"""Gradients that are wrong in a band of 3 to 10 % of the declared domain, and right in the rest of it."""

import math
from typing import Any

import numpy as np
import tensorflow as tf

from ops import Output, custom_gradient
from tests.gradcheck.planting import Planted
from tests.gradcheck.wrong.making import BOTH, WIDE, elementwise, rows

FIRST = ("derivative",)
SECOND = ("second",)


def softplus_tail(x, dy):
    """Above 2.6 the slope counts as 1, although it is 0.93 there."""
    return tf.where(x > 2.6, dy, dy * tf.sigmoid(x))


def softplus(x):
    return np.logaddexp(0, x)


def log1p_series(x, dy):
    """Near 0 the series of 1/(1 + x) ends after two terms."""
    return dy * tf.where(tf.abs(x) < 0.15, 1 - x, 1 / (1 + x))


def sine_quadrant(x, dy):
    """The cosine changes its sign at 1.3 in place of π/2."""
    c = tf.cos(x)
    return dy * tf.where(tf.abs(x) < 1.3, c, -tf.abs(c))


def tanh_series(x, dy, ddx):
    """Near 0 the second derivative is taken for -2x, the first term of its series."""
    t = tf.tanh(x)
    slope = 1 - t * t
    return ddx * dy * tf.where(tf.abs(x) < 0.2, -2 * x, -2 * t * slope), ddx * slope


def gentle_norm(x):
    return tf.sqrt(1 + tf.reduce_sum(x * x, axis=-1))


def gentle_norm_floor(x, dy):
    """The length that divides x is at least 1.8, so short rows have too short a gradient."""
    return tf.expand_dims(dy / tf.maximum(gentle_norm(x), 1.8), -1) * x


def quotient(x, w):
    """(eˣ - eʷ) / (x - w), and eˣ where x = w."""
    half = (x - w) / 2
    safe = tf.where(tf.equal(half, 0), tf.ones_like(half), half)
    return tf.exp((x + w) / 2) * tf.where(tf.equal(half, 0), tf.ones_like(half), tf.math.sinh(safe) / safe)


def quotient_vjp(x, w, dy):
    """Where x and w are near each other, the series of both slopes ends after its first term."""
    near = tf.abs(x - w) < 0.15
    apart = tf.where(near, tf.ones_like(x), x - w)
    middle, y = tf.exp((x + w) / 2) / 2, quotient(x, w)
    of_x = tf.where(near, middle, (tf.exp(x) - y) / apart)
    return dy * of_x, dy * tf.where(near, middle, (y - tf.exp(w)) / apart)


def quotient_reference(x, w):
    half = (x - w) / 2
    safe = np.where(half == 0, 1, half)
    return np.exp((x + w) / 2) * np.where(half == 0, 1, np.sinh(safe) / safe)


def lgamma_asymptotic(x, dy):
    """Above 2.8 digamma is taken for log x - 1/(2x), which lacks -1/(12x²)."""
    return dy * tf.where(x > 2.8, tf.math.log(x) - 0.5 / x, tf.math.digamma(x))


def swish(x):
    return x * tf.sigmoid(x)


def swish_tail(x, dy):
    """Below -2.7 the slope counts as 0, although it is -0.11 there."""
    s = tf.sigmoid(x)
    return dy * tf.where(x < -2.7, tf.zeros_like(x), s * (1 + x * (1 - s)))


def log_sum_exp(x):
    return tf.math.reduce_logsumexp(x, axis=-1)


def log_sum_exp_clipped(x, dy):
    """The weights of entries more than 5 below the largest do not shrink further."""
    below = tf.maximum(x - tf.reduce_max(x, axis=-1, keepdims=True), -5.0)
    return tf.nn.softmax(below) * tf.expand_dims(dy, -1)


def cauchy(x):
    return tf.math.log1p(tf.reduce_sum(x * x, axis=-1)) / 2


def cauchy_diagonal(x, dy, ddx):
    """Rows shorter than 1.5 lose the outer product of the Hessian."""
    square, along = tf.reduce_sum(x * x, axis=-1, keepdims=True), tf.reduce_sum(x * ddx, axis=-1, keepdims=True)
    outer = tf.where(square < 2.25, tf.zeros_like(x), 2 * x * along / (1 + square))
    return tf.expand_dims(dy, -1) * (ddx - outer) / (1 + square), tf.squeeze(along / (1 + square), axis=-1)


def bumps(x):
    """u²(1 - u)², where u is the fraction of x: smooth at the integers."""
    u = x - tf.floor(x)
    return tf.square(u * (1 - u))


def bumps_rounded(x, dy):
    """The last twentieth of each period counts as the begin of the next."""
    u = x - tf.floor(x + 0.05)
    return dy * 2 * u * (1 - u) * (1 - 2 * u)


def bumps_reference(x):
    u = x - np.floor(x)
    return (u * (1 - u)) ** 2


def ripples(x, w):
    return tf.sin(x) * tf.cos(w)


def ripples_vjp(x, w, dy):
    """Only where both inputs are above 1.4, the slope in w counts as 0."""
    slope = tf.where((x > 1.4) & (w > 1.4), tf.zeros_like(x), tf.sin(x) * tf.sin(w))
    return dy * tf.cos(x) * tf.cos(w), -dy * slope


def gated(x, gate):
    open_gate = tf.sigmoid(gate)
    return x * open_gate, (1 - open_gate) * tf.sin(x)


def gated_vjp(x, gate, dy, dz):
    """A nearly closed gate, below -2.5, passes nothing back to x."""
    s = tf.sigmoid(gate)
    of_x = dy * s + dz * (1 - s) * tf.cos(x)
    return tf.where(gate < -2.5, dz * tf.cos(x), of_x), s * (1 - s) * (dy * x - dz * tf.sin(x))


def gated_reference(x, gate):
    s = 1 / (1 + np.exp(-gate))
    return x * s, (1 - s) * np.sin(x)


lgamma = np.vectorize(math.lgamma)
TWO: dict[str, Any] = {"names": ("x", "w")}
SOFTPLUS, LOG1P = custom_gradient(tf.math.softplus, softplus_tail), custom_gradient(tf.math.log1p, log1p_series)
SINE, TANH = (
    custom_gradient(tf.sin, sine_quadrant),
    custom_gradient(tf.tanh, lambda x, dy: dy * (1 - tf.square(tf.tanh(x))), tanh_series),
)
LGAMMA, SWISH = custom_gradient(tf.math.lgamma, lgamma_asymptotic), custom_gradient(swish, swish_tail)
NORM, QUOTIENT = custom_gradient(gentle_norm, gentle_norm_floor), custom_gradient(quotient, quotient_vjp)
LOG_SUM_EXP = custom_gradient(log_sum_exp, log_sum_exp_clipped)
CAUCHY = custom_gradient(
    cauchy, lambda x, dy: x * tf.expand_dims(dy / (1 + tf.reduce_sum(x * x, axis=-1)), -1), cauchy_diagonal
)
BUMPS, RIPPLES = custom_gradient(bumps, bumps_rounded), custom_gradient(ripples, ripples_vjp)

OPS: dict[str, Planted] = {
    "a tail taken for a line": Planted(elementwise(SOFTPLUS, softplus, name="softplus_tail"), FIRST),
    "a series too short near 0": Planted(
        elementwise(LOG1P, np.log1p, name="log1p_series", slot={"domain": (-0.5, 3.0), "poles": (-1.0,)}), FIRST
    ),
    "a quadrant that ends too early": Planted(elementwise(SINE, np.sin, name="sine_quadrant"), FIRST),
    "second order alone wrong near 0": Planted(elementwise(TANH, np.tanh, name="tanh_series"), SECOND),
    "short rows with a floor": Planted(rows(NORM, lambda x: np.sqrt(1 + np.sum(x * x, -1)), out=("N",)), FIRST),
    "a series too short where inputs are near each other": Planted(
        elementwise(QUOTIENT, quotient_reference, **TWO), FIRST
    ),
    "an asymptote used too early": Planted(
        elementwise(LGAMMA, lgamma, name="lgamma_asymptotic", slot={"domain": (0.5, 3.0), "poles": (0.0,)}), FIRST
    ),
    "a tail taken for 0, in float32": Planted(
        elementwise(SWISH, lambda x: x * np.exp(-softplus(-x)), dtypes=("float32",)), FIRST
    ),
    "small weights that do not shrink": Planted(
        rows(LOG_SUM_EXP, lambda x: np.logaddexp.reduce(x, axis=-1), out=("N",)), FIRST
    ),
    "second order alone wrong at short rows": Planted(
        rows(CAUCHY, lambda x: np.log1p(np.sum(x * x, -1)) / 2, out=("N",)), SECOND
    ),
    "the end of each period": Planted(elementwise(BUMPS, bumps_reference), FIRST),
    "a corner of two inputs": Planted(
        elementwise(RIPPLES, lambda x, w: np.sin(x) * np.cos(w), dtypes=BOTH, **TWO), FIRST
    ),
    "a closed gate, with two outputs": Planted(
        elementwise(
            custom_gradient(gated, gated_vjp),
            gated_reference,
            names=("x", "gate"),
            outputs=(Output("y", WIDE), Output("z", WIDE)),
        ),
        FIRST,
    ),
}
