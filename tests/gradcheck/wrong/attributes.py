"""Gradients that are wrong at some values of an attribute, which no example has."""

import math
from typing import Any, Literal

import numpy as np
import tensorflow as tf
from pydantic import Field

from ops import Attrs, custom_gradient
from tests.gradcheck.planting import Planted
from tests.gradcheck.wrong.making import BOTH, elementwise, rows

FIRST = ("derivative",)
AT_0: dict[str, Any] = {"kinks": (0.0,)}
PROBABILITY: dict[str, Any] = {"domain": (0.05, 1.0), "poles": (0.0,)}


class NormAttrs(Attrs):
    order: Literal["one", "two", "largest"] = "two"


def norm(x, *, order):
    if order == "one":
        return tf.reduce_sum(tf.abs(x), axis=-1)
    if order == "two":
        return tf.sqrt(tf.reduce_sum(x * x, axis=-1))
    return tf.reduce_max(tf.abs(x), axis=-1)


def norm_vjp(x, dy, *, order):
    """The gradient of the largest entry loses its sign."""
    y, dy = tf.expand_dims(norm(x, order=order), -1), tf.expand_dims(dy, -1)
    if order == "one":
        return dy * tf.sign(x)
    if order == "two":
        return dy * tf.math.divide_no_nan(x, y)
    return dy * tf.cast(tf.equal(tf.abs(x), y), x.dtype)


def norm_reference(x, *, order):
    return np.linalg.norm(x, {"one": 1, "two": 2, "largest": np.inf}[order], axis=-1)


erf = np.vectorize(math.erf)


class GeluAttrs(Attrs):
    approximate: bool = False


def gelu(x, *, approximate):
    return x * (tf.sigmoid(1.702 * x) if approximate else 0.5 * (1 + tf.math.erf(x / np.sqrt(2))))


def gelu_vjp(x, dy, *, approximate):
    """The slope of the approximation lacks the factor 1.702 of its argument."""
    if approximate:
        s = tf.sigmoid(1.702 * x)
        return dy * (s + x * s * (1 - s))
    return dy * (0.5 * (1 + tf.math.erf(x / np.sqrt(2))) + x * tf.exp(-0.5 * x * x) / np.sqrt(2 * np.pi))


def gelu_reference(x, *, approximate):
    return x / (1 + np.exp(-1.702 * x)) if approximate else 0.5 * x * (1 + erf(x / np.sqrt(2)))


class LeakAttrs(Attrs):
    slope: float = Field(default=0.125, ge=0, le=1)


def leak(x, *, slope):
    return tf.where(x > 0, x, slope * x)


def leak_vjp(x, dy, *, slope):
    """The gradient has the default slope in place of the attribute."""
    return tf.where(x > 0, dy, 0.125 * dy)


class BoxCoxAttrs(Attrs):
    power: float = Field(default=0.5, ge=0, le=2)


def box_cox(x, *, power):
    safe = tf.where(tf.equal(power, 0), tf.ones_like(power), power)
    return tf.where(tf.equal(power, 0), tf.math.log(x), tf.math.expm1(safe * tf.math.log(x)) / safe)


def box_cox_vjp(x, dy, *, power):
    """At power 0, the bound of the field, the gradient is 1/x² in place of 1/x."""
    return dy * tf.where(tf.equal(power, 0), 1 / (x * x), tf.pow(x, power - 1))


def box_cox_reference(x, *, power):
    return np.log(x) if power == 0 else np.expm1(power * np.log(x)) / power


class MixAttrs(Attrs):
    mix: float = Field(default=0.5, ge=0, le=1)


def blend(x, *, mix):
    return mix * tf.sin(x) + (1 - mix) * x * x


def blend_vjp(x, dy, *, mix):
    """The gradient keeps the mix away from both bounds, which forward does not."""
    mix = tf.clip_by_value(mix, 0.02, 0.98)
    return dy * (mix * tf.cos(x) + (1 - mix) * 2 * x)


class PowerAttrs(Attrs):
    power: int = Field(default=2, ge=1, le=5)


def power_of(x, *, power):
    y = tf.ones_like(x)
    for _ in range(power):
        y = y * x
    return y


def power_vjp(x, dy, *, power):
    """The loop ends at x³, so the gradient is wrong at power 5 alone."""
    return power * dy * power_of(x, power=min(power - 1, 3))


class LossAttrs(Attrs):
    reduction: Literal["sum", "mean"] = "sum"


def count_of(x, reduction):
    return tf.cast(tf.shape(x)[-1] if reduction == "mean" else 1, x.dtype)


def loss(x, *, reduction):
    return tf.reduce_sum(tf.math.log1p(x * x), axis=-1) / count_of(x, reduction)


def loss_vjp(x, dy, *, reduction):
    return tf.expand_dims(dy, -1) * 2 * x / (1 + x * x) / count_of(x, reduction)


def loss_vjp_vjp(x, dy, ddx, *, reduction):
    """The x slot forgets the mean."""
    square = x * x
    of_dy = tf.reduce_sum(ddx * 2 * x / (1 + square), axis=-1) / count_of(x, reduction)
    return tf.expand_dims(dy, -1) * ddx * 2 * (1 - square) / tf.square(1 + square), of_dy


def loss_reference(x, *, reduction):
    return np.log1p(x**2).mean(-1) if reduction == "mean" else np.log1p(x**2).sum(-1)


class SumAttrs(Attrs):
    exclusive: bool = False
    reverse: bool = False


def running(x, *, exclusive, reverse):
    return tf.cumsum(x * x, axis=-1, exclusive=exclusive, reverse=reverse)


def forgets_both(x, dy, *, exclusive, reverse):
    """Each attribute alone is right; together, the sum runs the wrong way."""
    backwards = (not reverse) or exclusive
    return 2 * x * tf.cumsum(dy, axis=-1, exclusive=exclusive, reverse=backwards)


def running_reference(x, *, exclusive, reverse):
    squares = np.flip(x**2, -1) if reverse else x**2
    sums = np.cumsum(squares, -1) - (squares if exclusive else 0)
    return np.flip(sums, -1) if reverse else sums


class UnitAttrs(Attrs):
    unit: Literal["nats", "bits", "bans"] = "nats"


def surprise(x, *, unit):
    """A ban is log 10, not log 12."""
    return -tf.math.log(x) / {"nats": 1.0, "bits": np.log(2), "bans": np.log(12)}[unit]


def surprise_reference(x, *, unit):
    return -np.log(x) / np.log({"nats": np.e, "bits": 2, "bans": 10}[unit])


class ShiftAttrs(Attrs):
    shift: float = 0.5


def shifted(x, *, shift):
    return tf.math.softplus(x - shift)


def shifted_vjp(x, dy, *, shift):
    """The gradient takes a negative shift for a positive one."""
    return dy * tf.sigmoid(x - tf.abs(shift))


NORM, LOSS = custom_gradient(norm, norm_vjp), custom_gradient(loss, loss_vjp, loss_vjp_vjp)
EXCLUSIVE, SWITCHES = (
    custom_gradient(running, lambda x, dy, *, exclusive, reverse: 2 * x * tf.cumsum(dy, axis=-1, reverse=not reverse)),
    custom_gradient(running, forgets_both),
)
LEAK, GELU = custom_gradient(leak, leak_vjp), custom_gradient(gelu, gelu_vjp)
BOX_COX, BLEND = custom_gradient(box_cox, box_cox_vjp), custom_gradient(blend, blend_vjp)
POWER, SHIFTED = custom_gradient(power_of, power_vjp), custom_gradient(shifted, shifted_vjp)

OPS: dict[str, Planted] = {
    "a norm's largest entry loses its sign": Planted(
        rows(NORM, norm_reference, attrs=NormAttrs, out=("N",), slot=AT_0), FIRST
    ),
    "gelu's approximation lacks a factor": Planted(
        elementwise(GELU, gelu_reference, attrs=GeluAttrs, dtypes=BOTH), FIRST
    ),
    "a leak's gradient has the default slope": Planted(
        elementwise(LEAK, lambda x, *, slope: np.where(x > 0, x, slope * x), attrs=LeakAttrs, slot=AT_0), FIRST
    ),
    "the limit at the lower bound of a number": Planted(
        elementwise(BOX_COX, box_cox_reference, attrs=BoxCoxAttrs, slot={"domain": (0.5, 3.0), "poles": (0.0,)}), FIRST
    ),
    "a number kept away from its bounds": Planted(
        elementwise(BLEND, lambda x, *, mix: mix * np.sin(x) + (1 - mix) * x**2, attrs=MixAttrs), FIRST
    ),
    "a loop too short at the largest power": Planted(
        elementwise(POWER, lambda x, *, power: x**power, attrs=PowerAttrs), FIRST
    ),
    "a mean forgotten at second order": Planted(rows(LOSS, loss_reference, attrs=LossAttrs, out=("N",)), ("second",)),
    "an exclusive sum's gradient includes all": Planted(
        rows(EXCLUSIVE, running_reference, name="exclusive_sum", attrs=SumAttrs), FIRST
    ),
    "two switches wrong together only": Planted(
        rows(SWITCHES, running_reference, name="two_switches", attrs=SumAttrs), FIRST
    ),
    "a wrong unit at one literal": Planted(
        elementwise(
            surprise, surprise_reference, attrs=UnitAttrs, dtypes=BOTH, slot={"domain": (0.05, 1.0), "poles": (0.0,)}
        ),
        ("value",),
    ),
    "a negative number taken for a positive one": Planted(
        elementwise(SHIFTED, lambda x, *, shift: np.logaddexp(0, x - shift), attrs=ShiftAttrs), FIRST
    ),
}
