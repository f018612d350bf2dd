"""Gradients that are wrong at one value of an attribute, or where several attributes have certain values together."""

from typing import Literal

import numpy as np
import tensorflow as tf
from pydantic import Field

from ops import Attrs, InvalidInput, custom_gradient
from tests.gradcheck.planting import Planted
from tests.gradcheck.wrong.making import elementwise


class Digit(Attrs):
    digit: int = Field(default=1, ge=0, le=9)


class Switches(Attrs):
    first: bool = False
    second: bool = False
    third: bool = False


class Many(Attrs):
    power: int = Field(default=1, ge=0, le=9)
    unit: Literal["nats", "bits", "bans", "dits"] = "nats"


class Range(Attrs):
    low: int = Field(default=0, ge=0, le=6)
    high: int = Field(default=6, ge=0, le=6)
    unit: Literal["nats", "bits"] = "nats"


def waves(x, **attrs):
    return tf.sin(x)


def reference(x, **attrs):
    return np.sin(x)


def logarithm(x, **attrs):
    return tf.math.log(x)


def factor(attrs, wrong):
    """Return 1.125 where all attributes in ``wrong`` have these values, else 1."""
    return 1.125 if wrong.items() <= attrs.items() else 1.0


def first_where(**wrong):
    def vjp(x, dy, **attrs):
        return factor(attrs, wrong) * dy * tf.cos(x)

    return custom_gradient(waves, vjp)


def second_where(**wrong):
    def vjp(x, dy, **attrs):
        return dy * tf.cos(x)

    def vjp_vjp(x, dy, ddx, **attrs):
        return -factor(attrs, wrong) * dy * ddx * tf.sin(x), tf.cos(x) * ddx

    return custom_gradient(waves, vjp, vjp_vjp)


def logarithm_where(**wrong):
    def vjp(x, dy, **attrs):
        return factor(attrs, wrong) * dy / x

    return custom_gradient(logarithm, vjp)


def in_order(inputs, attrs):
    if attrs.low > attrs.high:
        raise InvalidInput("x", "low is above high", expected="low <= high", got=f"{attrs.low} > {attrs.high}")


def planted(name, function, attrs, reference=reference, **changes):
    """Return the op; a seed may draw the wrong value for the other checks."""
    checks = ("attributes", "derivative", "second")
    return Planted(elementwise(function, reference, attrs=attrs, name=name, **changes), checks)


OPS: dict[str, Planted] = {
    "one integer of ten": planted("one_of_ten", first_where(digit=6), Digit),
    "one integer of ten, where half of the points have no value": planted(
        "one_of_ten_logarithms", logarithm_where(digit=6), Digit, lambda x, **attrs: np.log(x)
    ),
    "one combination of three switches, at second order": planted(
        "three_switches", second_where(first=True, second=True, third=True), Switches
    ),
    "one pair of values of many": planted("one_pair", first_where(power=7, unit="dits"), Many),
    "one pair of values, where half of the combinations are refused": planted(
        "one_pair_of_valid", first_where(low=5, unit="bits"), Range, validate=in_order
    ),
}
