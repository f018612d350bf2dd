"""Casts, constants and divisions that lose digits, and ops that are wrong in one dtype only."""

import math
from typing import Any

import numpy as np
import tensorflow as tf

from ops import FLOATS, Input, Output, custom_gradient
from tests.gradcheck.planting import Planted
from tests.gradcheck.wrong.making import BOTH, MATRIX, elementwise, made, rows

FIRST = ("derivative",)
VALUE = ("value",)
VECTOR = ("N",)


def single(x):
    """Round to float32 and back."""
    return tf.cast(tf.cast(x, tf.float32), x.dtype)


def cosine_vjp(x, dy):
    return -tf.sin(x) * dy


def narrow_cosine(x):
    """The value has the digits of float32."""
    return single(tf.cos(x))


def narrow_cosine_vjp(x, dy):
    """The gradient has the digits of float32."""
    return -single(tf.sin(x)) * dy


def narrow_cotangent(x, dy):
    """The gradient rounds dy to float32."""
    return -tf.sin(x) * single(dy)


def half_exp(x, dy):
    """The gradient of an op of float32 goes through float16."""
    return dy * tf.cast(tf.exp(tf.cast(x, tf.float16)), x.dtype)


def cosine_second(x, dy, ddx):
    """Second order alone has the digits of float32."""
    return -single(tf.cos(x)) * dy * ddx, -tf.sin(x) * ddx


def narrow_rows(x):
    return tf.reduce_sum(x * tf.sin(x), axis=-1)


def narrow_rows_vjp(x, dy):
    """The gradient of rows computes in float32."""
    z = tf.cast(x, tf.float32)
    return tf.cast(z * tf.cos(z) + tf.sin(z), x.dtype) * dy[:, None]


def narrow_rows_reference(x):
    return (x * np.sin(x)).sum(axis=-1)


def brain_sine(x, dy):
    """The path of bfloat16 has another argument."""
    return dy * tf.cos(0.75 * x if x.dtype == tf.bfloat16 else x)


def half_power(x):
    """In float16, eˣ is taken for (1 + x/8)⁸."""
    return tf.pow(1 + x / 8, 8) if x.dtype == tf.float16 else tf.exp(x)


def length(x, w):
    """The squares overflow in float16."""
    return tf.sqrt(x * x + w * w)


def turns(x):
    """π has the digits of float32."""
    return x * tf.constant(float(np.float32(np.pi)), x.dtype)


def erf_vjp(x, dy):
    """2/√π has seven digits."""
    return dy * 1.128379 * tf.exp(-x * x)


def soft_step(x):
    """√(2/π) has four digits."""
    return tf.tanh(0.7979 * x)


def halved_sum(x):
    """The sum over half of the number of entries."""
    return 2 * tf.reduce_sum(tf.sin(x), axis=-1) / tf.cast(tf.shape(x)[-1], x.dtype)


def halved_sum_vjp(x, dy):
    """Half of an odd number is rounded down."""
    return tf.cos(x) * tf.expand_dims(dy / tf.cast(tf.shape(x)[-1] // 2, x.dtype), -1)


def middle(x):
    """x[i] i / 2, where i is divided before it is cast."""
    place = tf.range(tf.shape(x)[-1]) // 2
    return x * x * tf.cast(place, x.dtype)


def tiny_constant(x, dy):
    """The factors cancel, but dy times the first two is 0 in float16."""
    return 2 * x * (dy * 1e-4 * 1e-4) * 1e4 * 1e4


def single_sine(x, dy):
    """In float32 alone, the sign of the slope is that of x."""
    return dy * (tf.abs(tf.cos(x)) if x.dtype == tf.float32 else tf.cos(x))


def single_second(x, dy, ddx):
    """In float32 alone, the second order is halved."""
    factor = 0.5 if x.dtype == tf.float32 else 1.0
    return -factor * tf.cos(x) * dy * ddx, -tf.sin(x) * ddx


def whole_scale(x, k):
    return x * tf.sqrt(1 + tf.cast(k, x.dtype))


def whole_scale_vjp(x, k, dy):
    """The scale of the gradient is rounded to a whole number."""
    return dy * tf.floor(tf.sqrt(1 + tf.cast(k, x.dtype))), None


erf = np.vectorize(math.erf)
FAR: dict[str, Any] = {"domain": (100.0, 400.0)}
HALVED, SCALE = custom_gradient(halved_sum, halved_sum_vjp), custom_gradient(whole_scale, whole_scale_vjp)
NARROW_DY = custom_gradient(tf.cos, narrow_cotangent, lambda x, dy, ddx: (-tf.cos(x) * dy * ddx, -tf.sin(x) * ddx))
SINGLE_SECOND = custom_gradient(tf.cos, cosine_vjp, single_second)
SQUARE = custom_gradient(tf.square, tiny_constant)
COUNTED = (Input("x", BOTH, VECTOR), Input("k", ("int32",), VECTOR, differentiable=False, domain=(0.0, 8.0)))

OPS: dict[str, Planted] = {
    "a value with the digits of float32": Planted(
        elementwise(custom_gradient(narrow_cosine, cosine_vjp), np.cos, name="narrow_cosine_value"), VALUE
    ),
    "a gradient with the digits of float32": Planted(
        elementwise(custom_gradient(tf.cos, narrow_cosine_vjp), np.cos, name="narrow_cosine_gradient"), FIRST
    ),
    "rows whose gradient computes in float32": Planted(
        rows(custom_gradient(narrow_rows, narrow_rows_vjp), narrow_rows_reference, name="narrow_rows", out=VECTOR),
        FIRST,
    ),
    "a dy with the digits of float32": Planted(
        elementwise(NARROW_DY, np.cos, name="narrow_cotangent", dtypes=BOTH), ("derivative", "linearity", "adjoint")
    ),
    "a second order with the digits of float32": Planted(
        elementwise(custom_gradient(tf.cos, cosine_vjp, cosine_second), np.cos, name="narrow_second"), ("second",)
    ),
    "a gradient of float32 through float16": Planted(
        elementwise(custom_gradient(tf.exp, half_exp), np.exp, name="half_exp", dtypes=("float32",)), FIRST
    ),
    "another argument in bfloat16": Planted(
        elementwise(custom_gradient(tf.sin, brain_sine), np.sin, name="brain_sine", dtypes=FLOATS), ("dtypes",)
    ),
    "a power in float16": Planted(elementwise(half_power, np.exp, dtypes=FLOATS), ("value", "dtypes")),
    "squares that overflow in float16": Planted(
        elementwise(length, np.hypot, names=("x", "w"), dtypes=FLOATS, slot=FAR), ("value", "dtypes")
    ),
    "π with the digits of float32": Planted(elementwise(turns, lambda x: x * np.pi, dtypes=BOTH), VALUE),
    "2/√π with seven digits": Planted(elementwise(custom_gradient(tf.math.erf, erf_vjp), erf, name="short_erf"), FIRST),
    "a constant that has lost digits": Planted(
        elementwise(soft_step, lambda x: np.tanh(np.sqrt(2 / np.pi) * x), dtypes=BOTH), VALUE
    ),
    "an odd number halved in the gradient": Planted(
        rows(HALVED, lambda x: np.sin(x).sum(-1) / (x.shape[-1] / 2), out=VECTOR), FIRST
    ),
    "an odd number halved in forward": Planted(
        rows(middle, lambda x: x**2 * (np.arange(x.shape[-1], dtype=np.float64) / 2), dtypes=BOTH, out=MATRIX), VALUE
    ),
    "a factor that is 0 in float16": Planted(
        elementwise(SQUARE, np.square, name="tiny_constant", dtypes=("float64", "float32", "float16")), ("dtypes",)
    ),
    "a sign in float32": Planted(
        elementwise(custom_gradient(tf.sin, single_sine), np.sin, name="single_sine", dtypes=BOTH), ("dtypes",)
    ),
    "second order in float32": Planted(
        elementwise(SINGLE_SECOND, np.cos, name="single_second", dtypes=BOTH), ("dtypes",)
    ),
    "a scale rounded to a whole number": Planted(
        made(SCALE, lambda x, k: x * np.sqrt(1.0 + k), COUNTED, outputs=(Output("y", BOTH, VECTOR),)), FIRST
    ),
}
