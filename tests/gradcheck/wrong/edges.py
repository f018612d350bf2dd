"""Faults near poles and ends of a domain, far outside of the default one, and at special cotangents and NaN."""

import numpy as np
import tensorflow as tf
from scipy import special

from ops import custom_gradient
from tests.gradcheck.planting import Planted
from tests.gradcheck.wrong.making import elementwise, rows

VECTOR = ("N",)
SINGLE = ("float32",)


def clamped_logit(x, dy):
    """The denominator is kept from 0, near both poles."""
    return dy / tf.maximum(x * (1 - x), 1e-3)


def clamped_arcs(x, dy):
    """The root is kept from 0, near the ends of the domain."""
    return -x / tf.maximum(tf.sqrt((1 - x) * (1 + x)), 1e-2) * dy[:, None]


def cut_squashed(x, dy):
    """No slope beyond 4."""
    return tf.cast(tf.abs(x) < 4, x.dtype) * (1 - tf.tanh(x / 4) ** 2) / 4 * dy[:, None]


def clipped_high(x, dy):
    """Clipped where no ordinary cotangent reaches."""
    return tf.clip_by_value(tf.cos(x) * dy, -100, 100)


def clipped_at_1e8(x, dy):
    """Clipped beyond 1e8, against infinities."""
    return tf.clip_by_value(tf.cos(x) * dy, -1e8, 1e8)


def flushed_under_1e9(x, dy):
    """A small gradient counts as 0."""
    dx = tf.cos(x) * dy
    return tf.where(tf.abs(dx) < 1e-9, tf.zeros_like(dx), dx)


def sine_vjp(x, dy):
    return tf.cos(x) * dy


def clipped_second(x, dy, ddx):
    return -tf.sin(x) * tf.clip_by_value(dy, -1e8, 1e8) * ddx, tf.cos(x) * ddx


def flushed_slot(x, dy, ddx):
    return -tf.sin(x) * dy * ddx, tf.where(tf.abs(ddx) < 1e-9, tf.zeros_like(ddx), tf.cos(x) * ddx)


def divided_by_dy(x, dy):
    """NaN where the cotangent is 0."""
    return tf.cos(x) * tf.square(dy) / dy


def fast_at_one(x, dy):
    """A faster formula for cotangents of 1, with another slope."""
    is_one = tf.reduce_all(tf.equal(dy, 1))
    return (1 + 0.01 * tf.cast(is_one, x.dtype)) * tf.cos(x) * dy


def without_nan(x):
    return tf.where(tf.math.is_nan(x), tf.zeros_like(x), x)


def passed_to_nan(x, dy):
    """NaN gets a gradient, although it does not count."""
    return tf.identity(dy)


def squares_of_nan(x, dy):
    """NaN enters its own gradient."""
    return 2 * x * dy[:, None]


OPS: dict[str, Planted] = {
    "a denominator that is clamped near poles": Planted(
        elementwise(
            custom_gradient(lambda x: tf.math.log(x) - tf.math.log1p(-x), clamped_logit),
            special.logit,
            name="clamped_logit",
            slot={"domain": (0.0, 1.0), "poles": (0.0, 1.0)},
        ),
        ("derivative",),
    ),
    "a root that is clamped near the ends of the domain": Planted(
        rows(
            custom_gradient(lambda x: tf.reduce_sum(tf.sqrt((1 - x) * (1 + x)), axis=-1), clamped_arcs),
            lambda x: np.sqrt(1 - x**2).sum(axis=-1),
            name="clamped_arcs",
            out=VECTOR,
            slot={"domain": (-1.0, 1.0), "poles": (-1.0, 1.0)},
        ),
        ("derivative",),
    ),
    "rows without a slope outside of the default domain": Planted(
        rows(
            custom_gradient(lambda x: tf.reduce_sum(tf.tanh(x / 4), axis=-1), cut_squashed),
            lambda x: np.tanh(x / 4).sum(axis=-1),
            name="cut_squashed",
            out=VECTOR,
        ),
        ("derivative",),
    ),
    "clipped at large cotangents only": Planted(
        elementwise(custom_gradient(tf.sin, clipped_high), np.sin, name="clipped_high"), ("linearity",)
    ),
    "clipped at 1e8": Planted(
        elementwise(custom_gradient(tf.sin, clipped_at_1e8), np.sin, name="clipped_at_1e8"), ("linearity",)
    ),
    "flushed under 1e-9": Planted(
        elementwise(custom_gradient(tf.sin, flushed_under_1e9), np.sin, name="flushed_under_1e9", dtypes=SINGLE),
        ("linearity",),
    ),
    "a second order clipped at 1e8": Planted(
        elementwise(custom_gradient(tf.sin, sine_vjp, clipped_second), np.sin, name="clipped_second"), ("linearity",)
    ),
    "a second order flushed under 1e-9": Planted(
        elementwise(custom_gradient(tf.sin, sine_vjp, flushed_slot), np.sin, name="flushed_slot"), ("linearity",)
    ),
    "divided by cotangents of 0": Planted(
        elementwise(custom_gradient(tf.sin, divided_by_dy), np.sin, name="divided_by_dy"), ("linearity",)
    ),
    "another formula for cotangents of 1": Planted(
        elementwise(custom_gradient(tf.sin, fast_at_one), np.sin, name="fast_at_one", batching="none"), ("linearity",)
    ),
    "a gradient for NaN that forward leaves out": Planted(
        elementwise(custom_gradient(without_nan, passed_to_nan), np.nan_to_num, name="passed_to_nan"), ("finite",)
    ),
    "NaN in the gradient of rows without it": Planted(
        rows(
            custom_gradient(lambda x: tf.reduce_sum(tf.square(without_nan(x)), axis=-1), squares_of_nan),
            lambda x: np.nansum(x**2, axis=-1),
            name="squares_of_nan",
            out=VECTOR,
        ),
        ("finite",),
    ),
}
