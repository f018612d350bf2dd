"""Ops with many combinations of attributes: of few values each, of many, and with some that are refused."""

from functools import partial
from typing import Literal

import numpy as np
import tensorflow as tf
from mpmath import mp
from pydantic import Field

from ops import Attrs, Function, Input, InvalidInput, Output, custom_gradient
from tests.gradcheck.hard.exact import Hard, collected
from tests.gradcheck.hard.making import BOTH, elementwise, structured

ROWS = [[0.5, -1.25, 2.0, 1.0], [-3.0, 0.25, 1.0, 0.75]]


class Power(Attrs):
    power: int = Field(default=2, ge=0, le=9)


class Unit(Attrs):
    """A function of a line, and how much of x is added."""

    function: Literal["relu", "softplus", "log"] = "relu"
    scale: float = Field(default=1.0, ge=0.25, le=4)
    repeat: int = Field(default=1, ge=0, le=12)


class Sum(Attrs):
    """Which numbers of a row are added."""

    exclusive: bool = False
    lag: int = Field(default=0, ge=0, le=40)


class Window(Attrs):
    """Between which quarters numbers grow; the rest is flat."""

    low: int = Field(default=-2, ge=-4, le=4)
    high: int = Field(default=2, ge=-4, le=4)


def power(x, *, power):
    return tf.reduce_prod(tf.stack([tf.ones_like(x), *[x] * power]), axis=0)


FUNCTIONS: dict[str, tuple[Function, Function]] = {
    "relu": (tf.nn.relu, partial(np.maximum, 0)),
    "softplus": (tf.math.softplus, partial(np.logaddexp, 0)),
    "log": (tf.math.log, np.log),
}


def unit(x, *, function, scale, repeat):
    return FUNCTIONS[function][0](scale * x - 1) + repeat * x


def unit_reference(x, *, function, scale, repeat):
    return FUNCTIONS[function][1](scale * x - 1) + repeat * x


def triangle(x, *, exclusive, lag):
    """Return the matrix that adds up a row of x."""
    i = tf.range(tf.shape(x)[-1])
    return tf.cast(i[:, None] - i[None, :] >= lag + exclusive, x.dtype)


def in_order(inputs, attrs):
    if attrs.low >= attrs.high:
        raise InvalidInput("x", "low is not below high", expected="low < high", got=f"{attrs.low} and {attrs.high}")


OPS: dict[str, Hard] = collected(
    Hard(
        elementwise(
            "one_power_of_ten",
            custom_gradient(
                power, lambda x, dy, *, power: power * x ** (power - 1) * dy if power else tf.zeros_like(x)
            ),
            lambda x, *, power: x**power,
            {"x": [-1.5, 0.25, 2.0]},
            attrs=Power,
            dtypes=BOTH,
        ),
        lambda x, *, power: mp.power(x, power) if power else mp.mpf(1),
    ),
    Hard(elementwise("one_function_of_three", unit, unit_reference, {"x": [-1.5, 0.25, 2.0]}, attrs=Unit)),
    Hard(
        structured(
            "one_sum_of_many",
            custom_gradient(
                lambda x, **attrs: tf.einsum("nj,ij->ni", x, triangle(x, **attrs)),
                lambda x, dy, **attrs: tf.einsum("ni,ij->nj", dy, triangle(x, **attrs)),
            ),
            lambda x, *, exclusive, lag: x @ np.tri(x.shape[-1], k=-(lag + exclusive)).T,
            {"x": ROWS},
            attrs=Sum,
            inputs=(Input("x", BOTH, ("N", "M")),),
            outputs=(Output("y", BOTH, ("N", "M")),),
            batching="leading_axis",
        )
    ),
    Hard(
        elementwise(
            "a_window_whose_ends_have_an_order",
            lambda x, *, low, high: tf.math.softplus(x - low / 4) - tf.math.softplus(x - high / 4),
            lambda x, *, low, high: np.logaddexp(0, x - low / 4) - np.logaddexp(0, x - high / 4),
            {"x": [-1.5, 0.25, 2.0]},
            attrs=Window,
            validate=in_order,
        )
    ),
)
