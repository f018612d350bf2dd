"""Gradients with wrong finite values at special points: ties, 0, -0.0, a kink, the edge of the domain."""

from typing import Any

import numpy as np
import tensorflow as tf

from ops import Input, custom_gradient
from tests.gradcheck.planting import Planted
from tests.gradcheck.wrong.making import BOTH, MATRIX, WIDE, elementwise, rows

FIRST = ("derivative",)
ENDS = (-1.5, 0.75)


def largest(x):
    return tf.reduce_max(x, axis=-1)


def largest_vjp(x, dy):
    """Each of several equal maxima gets all of dy."""
    is_largest = tf.equal(x, tf.reduce_max(x, axis=-1, keepdims=True))
    return tf.cast(is_largest, x.dtype) * tf.expand_dims(dy, -1)


def median(x):
    return tf.sort(x, axis=-1)[..., 1]


def median_vjp(x, dy):
    """Each entry that equals the median gets all of dy."""
    is_median = tf.equal(x, tf.expand_dims(median(x), -1))
    return tf.cast(is_median, x.dtype) * tf.expand_dims(dy, -1)


def larger(x, w):
    return tf.maximum(x, w)


def larger_vjp(x, w, dy):
    """Where x = w, both get all of dy."""
    zero = tf.zeros_like(dy)
    return tf.where(x >= w, dy, zero), tf.where(w >= x, dy, zero)


def largest_two(x):
    return tf.reduce_sum(tf.sort(x, axis=-1)[..., -2:], axis=-1)


def largest_two_vjp(x, dy):
    """All entries that tie with the second get dy."""
    second = tf.sort(x, axis=-1)[..., -2:-1]
    return tf.cast(x >= second, x.dtype) * tf.expand_dims(dy, -1)


def ascending(x):
    return tf.sort(x, axis=-1)


def ascending_vjp(x, dy):
    """Equal entries each get the sum of their cotangents."""
    is_there = tf.equal(tf.expand_dims(x, -1), tf.expand_dims(ascending(x), -2))
    return tf.linalg.matvec(tf.cast(is_there, x.dtype), dy)


def log_sum_exp(x):
    return tf.math.reduce_logsumexp(x, axis=-1)


def log_sum_exp_vjp(x, dy):
    """The weight of the largest entry is what the others leave, and each of several largest gets all of it."""
    p, is_largest = tf.nn.softmax(x), tf.equal(x, tf.reduce_max(x, axis=-1, keepdims=True))
    others = tf.reduce_sum(tf.where(is_largest, tf.zeros_like(p), p), axis=-1, keepdims=True)
    return tf.where(is_largest, 1 - others, p) * tf.expand_dims(dy, -1)


def nodes(x, w):
    """The divided difference of x³ at the nodes x and w."""
    return x * x + x * w + w * w


def nodes_vjp(x, w, dy):
    """At equal nodes both slopes are 6x, the second derivative of x³, which should be halved."""
    equal = tf.equal(x, w)
    return dy * tf.where(equal, 6 * x, 2 * x + w), dy * tf.where(equal, 6 * w, x + 2 * w)


def softsign(x):
    return x / (1 + tf.abs(x))


def slope_at_zero(x):
    """The slope is (y/x)², and 0 in place of 1 where that is 0/0."""
    return tf.square(tf.math.divide_no_nan(softsign(x), x))


def slope_at_negative_zero(x):
    """The bits of 0 are recognised, those of -0.0 are not."""
    return tf.where(tf.equal(tf.bitcast(x, tf.int64), 0), tf.ones_like(x), slope_at_zero(x))


def softsign_of(slope):
    """Return softsign with a slope at first order, and the right second order."""

    def softsign_vjp(x, dy):
        return dy * slope(x)

    def softsign_vjp_vjp(x, dy, ddx):
        return -2 * tf.sign(x) * dy * ddx / tf.pow(1 + tf.abs(x), 3), slope(x) * ddx

    return custom_gradient(softsign, softsign_vjp, softsign_vjp_vjp)


def softsign_reference(x):
    return x / (1 + np.abs(x))


def third(x):
    return x * x * x / 3


def third_inside(x, dy):
    """Both edges of the domain count as outside."""
    return tf.where(tf.abs(x) < 2, x * x * dy, tf.zeros_like(dy))


def area(x):
    return x * tf.sqrt(x)


def area_vjp(x, dy):
    """The slope is 1.5 y/x; at 0, the lower edge of the domain, y/x counts as 1."""
    safe = tf.where(x > 0, x, tf.ones_like(x))
    return dy * 1.5 * area(safe) / safe


def leak(x):
    return tf.where(x > 0, x, x / 8)


def leak_late(x, dy):
    """The gradient changes sides at 0.1, right of the kink."""
    return tf.where(x > 0.1, dy, dy / 8)


def leak_twice(x, dy):
    """At the kink the slopes of both sides are added."""
    zero = tf.zeros_like(dy)
    return tf.where(x >= 0, dy, zero) + tf.where(x <= 0, dy / 8, zero)


def leak_reference(x):
    return np.where(x > 0, x, x / 8)


def ramp(x):
    return tf.clip_by_value(x, *ENDS)


def ramp_vjp(x, dy):
    """At the upper kink the slope is -1: the sign of the distance to it, taken the wrong way."""
    slope = tf.where(x == ENDS[1], -tf.ones_like(x), tf.cast((x >= ENDS[0]) & (x <= ENDS[1]), x.dtype))
    return dy * slope


def kernel(x, w):
    """1 / (1 + |x - w|²) over the last axis, plus the sum of x."""
    return 1 / (1 + tf.reduce_sum(tf.square(x - w), axis=-1)) + tf.reduce_sum(x, axis=-1)


def kernel_vjp(x, w, dy):
    """Equal rows get no gradient at all, although the sum of x has one."""
    d, dy = x - w, tf.expand_dims(dy, -1)
    square = tf.reduce_sum(d * d, axis=-1, keepdims=True)
    slope = -2 * d / tf.square(1 + square)
    return dy * tf.where(square > 0, slope + 1, tf.zeros_like(x)), -dy * slope


def kernel_reference(x, w):
    return 1 / (1 + np.sum((x - w) ** 2, -1)) + x.sum(-1)


TWO: dict[str, Any] = {"names": ("x", "w")}
AT_0: dict[str, Any] = {"kinks": (0.0,)}
LATE, TWICE = custom_gradient(leak, leak_late), custom_gradient(leak, leak_twice)
ZERO, NEGATIVE = softsign_of(slope_at_zero), softsign_of(slope_at_negative_zero)
LARGEST, MEDIAN = custom_gradient(largest, largest_vjp), custom_gradient(median, median_vjp)
LARGEST_TWO, SORTED = custom_gradient(largest_two, largest_two_vjp), custom_gradient(ascending, ascending_vjp)
LARGER, NODES = custom_gradient(larger, larger_vjp), custom_gradient(nodes, nodes_vjp)
LOG_SUM_EXP, RAMP = custom_gradient(log_sum_exp, log_sum_exp_vjp), custom_gradient(ramp, ramp_vjp)
EDGES, AREA = custom_gradient(third, third_inside), custom_gradient(area, area_vjp)
PAIR = (Input("x", WIDE, MATRIX), Input("w", WIDE, MATRIX))
TRIPLES = (Input("x", WIDE, ("N", 3)),)

OPS: dict[str, Planted] = {
    "each maximum gets all of dy": Planted(rows(LARGEST, lambda x: np.max(x, -1), dtypes=BOTH, out=("N",)), FIRST),
    "each median gets all of dy": Planted(rows(MEDIAN, lambda x: np.median(x, -1), inputs=TRIPLES, out=("N",)), FIRST),
    "both of two equal inputs get all of dy": Planted(elementwise(LARGER, np.maximum, **TWO), FIRST),
    "each entry that ties with the second gets dy": Planted(
        rows(LARGEST_TWO, lambda x: np.sort(x, -1)[..., -2:].sum(-1), out=("N",)), FIRST
    ),
    "equal entries of a sort get the sum": Planted(rows(SORTED, lambda x: np.sort(x, -1)), FIRST),
    "each of several largest gets the rest": Planted(
        rows(LOG_SUM_EXP, lambda x: np.logaddexp.reduce(x, axis=-1), name="weight_of_the_largest", out=("N",)), FIRST
    ),
    "the limit at equal inputs is twice what it should be": Planted(
        elementwise(NODES, lambda x, w: x**2 + x * w + w**2, **TWO), FIRST
    ),
    "0 at 0 in place of 1": Planted(elementwise(ZERO, softsign_reference, dtypes=BOTH), FIRST),
    "0 at -0.0 in place of 1": Planted(elementwise(NEGATIVE, softsign_reference, name="negative_zero"), FIRST),
    "both edges of the domain": Planted(elementwise(EDGES, lambda x: x**3 / 3, slot={"domain": (-2.0, 2.0)}), FIRST),
    "the lower edge of the domain": Planted(
        elementwise(AREA, lambda x: x * np.sqrt(x), slot={"domain": (0.0, 3.0)}), FIRST
    ),
    "one side of a declared kink": Planted(elementwise(LATE, leak_reference, name="late_leak", slot=AT_0), FIRST),
    "the sum of both slopes at a kink": Planted(
        elementwise(TWICE, leak_reference, name="leak_twice", slot=AT_0), FIRST
    ),
    "a slope outside of both slopes at a kink": Planted(
        elementwise(RAMP, lambda x: np.clip(x, *ENDS), slot={"kinks": ENDS}), FIRST
    ),
    "no gradient at equal rows": Planted(
        rows(custom_gradient(kernel, kernel_vjp), kernel_reference, inputs=PAIR, out=("N",)), FIRST
    ),
}
