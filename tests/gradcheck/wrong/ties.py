"""Gradients with wrong finite values at special points: ties, 0, -0.0, a kink, the edge of the domain."""

from typing import Any

import numpy as np
import tensorflow as tf

from ops import Array, Function, Input, Tensor, custom_gradient
from tests.gradcheck.planting import Planted
from tests.gradcheck.wrong.making import BOTH, MATRIX, WIDE, elementwise, rows

FIRST = ("derivative",)
ENDS = (-1.5, 0.75)


def largest(x: Tensor) -> Tensor:
    return tf.reduce_max(x, axis=-1)


def largest_vjp(x: Tensor, dy: Tensor) -> Tensor:
    """Each of several equal maxima gets all of dy."""
    is_largest = tf.equal(x, tf.reduce_max(x, axis=-1, keepdims=True))
    return tf.cast(is_largest, x.dtype) * tf.expand_dims(dy, -1)


def largest_reference(x: Array) -> Array:
    return np.max(x, -1)


def median(x: Tensor) -> Tensor:
    return tf.sort(x, axis=-1)[..., 1]


def median_vjp(x: Tensor, dy: Tensor) -> Tensor:
    """Each entry that equals the median gets all of dy."""
    is_median = tf.equal(x, tf.expand_dims(median(x), -1))
    return tf.cast(is_median, x.dtype) * tf.expand_dims(dy, -1)


def median_reference(x: Array) -> Array:
    return np.median(x, -1)


def larger(x: Tensor, w: Tensor) -> Tensor:
    return tf.maximum(x, w)


def larger_vjp(x: Tensor, w: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    """Where x = w, both get all of dy."""
    zero = tf.zeros_like(dy)
    return tf.where(x >= w, dy, zero), tf.where(w >= x, dy, zero)


def largest_two(x: Tensor) -> Tensor:
    return tf.reduce_sum(tf.sort(x, axis=-1)[..., -2:], axis=-1)


def largest_two_vjp(x: Tensor, dy: Tensor) -> Tensor:
    """All entries that tie with the second get dy."""
    second = tf.sort(x, axis=-1)[..., -2:-1]
    return tf.cast(x >= second, x.dtype) * tf.expand_dims(dy, -1)


def largest_two_reference(x: Array) -> Array:
    return np.sort(x, -1)[..., -2:].sum(-1)


def ascending(x: Tensor) -> Tensor:
    return tf.sort(x, axis=-1)


def ascending_vjp(x: Tensor, dy: Tensor) -> Tensor:
    """Equal entries each get the sum of their cotangents."""
    is_there = tf.equal(tf.expand_dims(x, -1), tf.expand_dims(ascending(x), -2))
    return tf.linalg.matvec(tf.cast(is_there, x.dtype), dy)


def ascending_reference(x: Array) -> Array:
    return np.sort(x, -1)


def log_sum_exp(x: Tensor) -> Tensor:
    return tf.math.reduce_logsumexp(x, axis=-1)


def log_sum_exp_vjp(x: Tensor, dy: Tensor) -> Tensor:
    """The weight of the largest entry is what the others leave, and each of several largest gets all of it."""
    p, is_largest = tf.nn.softmax(x), tf.equal(x, tf.reduce_max(x, axis=-1, keepdims=True))
    others = tf.reduce_sum(tf.where(is_largest, tf.zeros_like(p), p), axis=-1, keepdims=True)
    return tf.where(is_largest, 1 - others, p) * tf.expand_dims(dy, -1)


def log_sum_exp_reference(x: Array) -> Array:
    return np.logaddexp.reduce(x, axis=-1)


def nodes(x: Tensor, w: Tensor) -> Tensor:
    """The divided difference of x³ at the nodes x and w."""
    return x * x + x * w + w * w


def nodes_vjp(x: Tensor, w: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    """At equal nodes both slopes are 6x, the second derivative of x³, which should be halved."""
    equal = tf.equal(x, w)
    return dy * tf.where(equal, 6 * x, 2 * x + w), dy * tf.where(equal, 6 * w, x + 2 * w)


def nodes_reference(x: Array, w: Array) -> Array:
    return x**2 + x * w + w**2


def softsign(x: Tensor) -> Tensor:
    return x / (1 + tf.abs(x))


def slope_at_zero(x: Tensor) -> Tensor:
    """The slope is (y/x)², and 0 in place of 1 where that is 0/0."""
    return tf.square(tf.math.divide_no_nan(softsign(x), x))


def slope_at_negative_zero(x: Tensor) -> Tensor:
    """The bits of 0 are recognised, those of -0.0 are not."""
    return tf.where(tf.equal(tf.bitcast(x, tf.int64), 0), tf.ones_like(x), slope_at_zero(x))


def softsign_of(slope: Function) -> Function:
    """Return softsign with a slope at first order, and the right second order."""

    def softsign_vjp(x: Tensor, dy: Tensor) -> Tensor:
        return dy * slope(x)

    def softsign_vjp_vjp(x: Tensor, dy: Tensor, ddx: Tensor) -> tuple[Tensor, Tensor]:
        return -2 * tf.sign(x) * dy * ddx / tf.pow(1 + tf.abs(x), 3), slope(x) * ddx

    return custom_gradient(softsign, softsign_vjp, softsign_vjp_vjp)


def softsign_reference(x: Array) -> Array:
    return x / (1 + np.abs(x))


def third(x: Tensor) -> Tensor:
    return x * x * x / 3


def third_inside(x: Tensor, dy: Tensor) -> Tensor:
    """Both edges of the domain count as outside."""
    return tf.where(tf.abs(x) < 2, x * x * dy, tf.zeros_like(dy))


def third_reference(x: Array) -> Array:
    return x**3 / 3


def area(x: Tensor) -> Tensor:
    return x * tf.sqrt(x)


def area_vjp(x: Tensor, dy: Tensor) -> Tensor:
    """The slope is 1.5 y/x; at 0, the lower edge of the domain, y/x counts as 1."""
    safe = tf.where(x > 0, x, tf.ones_like(x))
    return dy * 1.5 * area(safe) / safe


def area_reference(x: Array) -> Array:
    return x * np.sqrt(x)


def leak(x: Tensor) -> Tensor:
    return tf.where(x > 0, x, x / 8)


def leak_late(x: Tensor, dy: Tensor) -> Tensor:
    """The gradient changes sides at 0.1, right of the kink."""
    return tf.where(x > 0.1, dy, dy / 8)


def leak_twice(x: Tensor, dy: Tensor) -> Tensor:
    """At the kink the slopes of both sides are added."""
    zero = tf.zeros_like(dy)
    return tf.where(x >= 0, dy, zero) + tf.where(x <= 0, dy / 8, zero)


def leak_reference(x: Array) -> Array:
    return np.where(x > 0, x, x / 8)


def ramp(x: Tensor) -> Tensor:
    return tf.clip_by_value(x, *ENDS)


def ramp_vjp(x: Tensor, dy: Tensor) -> Tensor:
    """At the upper kink the slope is -1: the sign of the distance to it, taken the wrong way."""
    slope = tf.where(x == ENDS[1], -tf.ones_like(x), tf.cast((x >= ENDS[0]) & (x <= ENDS[1]), x.dtype))
    return dy * slope


def ramp_reference(x: Array) -> Array:
    return np.clip(x, *ENDS)


def kernel(x: Tensor, w: Tensor) -> Tensor:
    """1 / (1 + |x - w|²) over the last axis, plus the sum of x."""
    return 1 / (1 + tf.reduce_sum(tf.square(x - w), axis=-1)) + tf.reduce_sum(x, axis=-1)


def kernel_vjp(x: Tensor, w: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    """Equal rows get no gradient at all, although the sum of x has one."""
    d, dy = x - w, tf.expand_dims(dy, -1)
    square = tf.reduce_sum(d * d, axis=-1, keepdims=True)
    slope = -2 * d / tf.square(1 + square)
    return dy * tf.where(square > 0, slope + 1, tf.zeros_like(x)), -dy * slope


def kernel_reference(x: Array, w: Array) -> Array:
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
    "each maximum gets all of dy": Planted(rows(LARGEST, largest_reference, dtypes=BOTH, out=("N",)), FIRST),
    "each median gets all of dy": Planted(rows(MEDIAN, median_reference, inputs=TRIPLES, out=("N",)), FIRST),
    "both of two equal inputs get all of dy": Planted(elementwise(LARGER, np.maximum, **TWO), FIRST),
    "each entry that ties with the second gets dy": Planted(
        rows(LARGEST_TWO, largest_two_reference, out=("N",)), FIRST
    ),
    "equal entries of a sort get the sum": Planted(rows(SORTED, ascending_reference), FIRST),
    "each of several largest gets the rest": Planted(
        rows(LOG_SUM_EXP, log_sum_exp_reference, name="weight_of_the_largest", out=("N",)), FIRST
    ),
    "the limit at equal inputs is twice what it should be": Planted(elementwise(NODES, nodes_reference, **TWO), FIRST),
    "0 at 0 in place of 1": Planted(elementwise(ZERO, softsign_reference, dtypes=BOTH), FIRST),
    "0 at -0.0 in place of 1": Planted(elementwise(NEGATIVE, softsign_reference, name="negative_zero"), FIRST),
    "both edges of the domain": Planted(elementwise(EDGES, third_reference, slot={"domain": (-2.0, 2.0)}), FIRST),
    "the lower edge of the domain": Planted(elementwise(AREA, area_reference, slot={"domain": (0.0, 3.0)}), FIRST),
    "one side of a declared kink": Planted(elementwise(LATE, leak_reference, name="late_leak", slot=AT_0), FIRST),
    "the sum of both slopes at a kink": Planted(
        elementwise(TWICE, leak_reference, name="leak_twice", slot=AT_0), FIRST
    ),
    "a slope outside of both slopes at a kink": Planted(elementwise(RAMP, ramp_reference, slot={"kinks": ENDS}), FIRST),
    "no gradient at equal rows": Planted(
        rows(custom_gradient(kernel, kernel_vjp), kernel_reference, inputs=PAIR, out=("N",)), FIRST
    ),
}
