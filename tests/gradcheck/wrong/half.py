"""Gradients and values that are a few per cent off in half precision only."""

from typing import Any

import numpy as np
import tensorflow as tf
from scipy import special

from ops import FLOATS, Input, Output, custom_gradient
from tests.gradcheck.planting import Planted
from tests.gradcheck.wrong.making import MATRIX, elementwise, made, rows

DTYPES = ("dtypes",)
VALUE = ("value", "dtypes")


def off(x):
    """Return 1 % to 10 % too much in half precision: some units in the last place of a number."""
    return {tf.float16: 1.02, tf.bfloat16: 1.1}.get(x.dtype, 1.0)


def brain(x):
    return 1.1 if x.dtype == tf.bfloat16 else 1.0


def half(x):
    return 1.02 if x.dtype == tf.float16 else 1.0


def tanh_vjp(x, dy):
    y = tf.tanh(x)
    return half(x) * (1 - y * y) * dy


def brain_second(x, dy, ddx):
    return -brain(x) * tf.cos(x) * dy * ddx, -tf.sin(x) * ddx


def softmax_vjp(x, dy):
    y = tf.nn.softmax(x)
    return half(x) * y * (dy - tf.reduce_sum(y * dy, axis=-1, keepdims=True))


def gelu(x):
    """The constant of the approximation is another one in half precision."""
    c = 0.044715 if x.dtype in (tf.float32, tf.float64) else 0.06
    return 0.5 * x * (1 + tf.tanh(0.7978845608028654 * (x + c * x**3)))


def gelu_reference(x):
    return 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))


def layer_norm(x):
    centred = x - tf.reduce_mean(x, axis=-1, keepdims=True)
    return centred * tf.math.rsqrt(tf.reduce_mean(centred * centred, axis=-1, keepdims=True) + 0.125)


def layer_norm_vjp(x, dy):
    """In half precision, the term of the variance is 10 % too large."""
    centred = x - tf.reduce_mean(x, axis=-1, keepdims=True)
    r = tf.math.rsqrt(tf.reduce_mean(centred * centred, axis=-1, keepdims=True) + 0.125)
    y = centred * r
    of_mean = tf.reduce_mean(dy, axis=-1, keepdims=True)
    return r * (dy - of_mean - (2 * off(x) - 1) * y * tf.reduce_mean(dy * y, axis=-1, keepdims=True))


def layer_norm_reference(x):
    c = x - x.mean(axis=-1, keepdims=True)
    return c / np.sqrt((c * c).mean(axis=-1, keepdims=True) + 0.125)


def product_vjp(x, w, dy):
    return tf.matmul(dy, w, transpose_b=True), off(x) * tf.matmul(x, dy, transpose_a=True)


def half_length(x, w):
    return off(x) * tf.sqrt(x * x + w * w)


def doubled_dy(x, dy, ddx):
    return 6 * x * dy * ddx, off(x) * 3 * x * x * ddx


def scaled_sum_vjp(x, dy):
    """In half precision, 1/7 has two digits."""
    scale = 0.14 if x.dtype in (tf.float16, tf.bfloat16) else 1 / 7
    return tf.zeros_like(x) + scale * tf.expand_dims(dy, -1)


WIDER: dict[str, Any] = {"domain": (-2.0, 2.0)}
OPS: dict[str, Planted] = {
    "2 % of tanh in float16": Planted(
        elementwise(custom_gradient(tf.tanh, tanh_vjp), np.tanh, name="tanh_off", dtypes=FLOATS), DTYPES
    ),
    "10 % of exp in bfloat16": Planted(
        elementwise(
            custom_gradient(tf.exp, lambda x, dy: brain(x) * tf.exp(x) * dy), np.exp, name="exp_off", dtypes=FLOATS
        ),
        DTYPES,
    ),
    "2 % of a value in float16": Planted(
        elementwise(lambda x: half(x) * tf.sin(x), np.sin, dtypes=FLOATS, name="half_sine"), VALUE
    ),
    "10 % of the second order in bfloat16": Planted(
        elementwise(
            custom_gradient(tf.cos, lambda x, dy: -tf.sin(x) * dy, brain_second),
            np.cos,
            name="brain_second",
            dtypes=FLOATS,
        ),
        DTYPES,
    ),
    "2 % of softmax in float16": Planted(
        rows(
            custom_gradient(tf.nn.softmax, softmax_vjp),
            lambda x: special.softmax(x, axis=-1),
            name="softmax_off",
            dtypes=FLOATS,
        ),
        DTYPES,
    ),
    "some per cent of a mean square in half precision": Planted(
        rows(
            custom_gradient(
                lambda x: tf.reduce_mean(x * x, axis=-1),
                lambda x, dy: off(x) * 2 * x * tf.expand_dims(dy, -1) / tf.cast(tf.shape(x)[-1], x.dtype),
            ),
            lambda x: (x * x).mean(axis=-1),
            name="mean_square_off",
            dtypes=FLOATS,
            out=("N",),
        ),
        DTYPES,
    ),
    "some per cent of softplus in half precision": Planted(
        elementwise(
            custom_gradient(tf.nn.softplus, lambda x, dy: off(x) * tf.sigmoid(x) * dy),
            lambda x: np.logaddexp(0, x),
            name="softplus_off",
            dtypes=FLOATS,
        ),
        DTYPES,
    ),
    "another constant of gelu in half precision": Planted(
        elementwise(gelu, gelu_reference, name="gelu_off", dtypes=FLOATS), VALUE
    ),
    "a term of layer norm in half precision": Planted(
        rows(custom_gradient(layer_norm, layer_norm_vjp), layer_norm_reference, name="layer_norm_off", dtypes=FLOATS),
        DTYPES,
    ),
    "one of two gradients of a product in half precision": Planted(
        made(
            custom_gradient(tf.matmul, product_vjp),
            lambda x, w: x @ w,
            (Input("x", FLOATS, MATRIX), Input("w", FLOATS, ("M", "K"))),
            name="product_off",
            outputs=(Output("y", FLOATS, ("N", "K")),),
        ),
        DTYPES,
    ),
    "some per cent of log-sum-exp in half precision": Planted(
        rows(
            custom_gradient(
                lambda x: tf.reduce_logsumexp(x, axis=-1),
                lambda x, dy: off(x) * tf.nn.softmax(x) * tf.expand_dims(dy, -1),
            ),
            lambda x: special.logsumexp(x, axis=-1),
            name="log_sum_off",
            dtypes=FLOATS,
            out=("N",),
        ),
        DTYPES,
    ),
    "some per cent of a length in half precision": Planted(
        elementwise(half_length, np.hypot, names=("x", "w"), dtypes=FLOATS, slot={"domain": (0.5, 3.0)}), VALUE
    ),
    "some per cent of a dy slot in half precision": Planted(
        elementwise(
            custom_gradient(lambda x: x**3, lambda x, dy: 3 * x * x * dy, doubled_dy),
            lambda x: x**3,
            name="dy_slot_off",
            dtypes=FLOATS,
            slot=WIDER,
        ),
        DTYPES,
    ),
    "a seventh of two digits in half precision": Planted(
        rows(
            custom_gradient(lambda x: tf.reduce_sum(x, axis=-1) / 7, scaled_sum_vjp),
            lambda x: x.sum(axis=-1) / 7,
            name="seventh_off",
            dtypes=FLOATS,
            out=("N",),
        ),
        DTYPES,
    ),
}
