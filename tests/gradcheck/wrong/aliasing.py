"""Gradients that return dy itself, share a buffer, or end up at the wrong input or output."""

import functools
from typing import Any

import numpy as np
import tensorflow as tf

from ops import Input, Output, custom_gradient
from tests.gradcheck.planting import Planted
from tests.gradcheck.wrong.making import BOTH, MATRIX, WIDE, elementwise, made, rows

FIRST = ("derivative",)
VECTOR = ("N",)


def unchanged(x, dy):
    """dy itself, as if the small wave were not there."""
    return dy


def centred(x):
    return x - tf.reduce_mean(x, axis=-1, keepdims=True)


def centred_reference(x):
    return x - x.mean(-1, keepdims=True)


def first_doubled(x):
    return tf.tensor_scatter_nd_update(x, [[0]], 2 * x[:1])


def first_doubled_reference(x):
    return np.concatenate([2 * x[:1], x[1:]])


def placed(x, w):
    """x with w in its first place."""
    return tf.tensor_scatter_nd_update(x, [[0]], w[:1])


def placed_vjp(x, w, dy):
    """The place that w took still passes dy to x."""
    return dy, tf.tensor_scatter_nd_update(tf.zeros_like(w), [[0]], dy[:1])


def angle(y, x):
    return tf.math.atan2(y, x)


def angle_vjp(y, x, dy):
    """The gradients of both inputs are swapped."""
    square = x * x + y * y
    return -y * dy / square, x * dy / square


def difference_vjp(x, w, dy):
    """Both inputs get the same tensor."""
    dx = 2 * x * dy
    return dx, dx


@functools.cache
def scratch():
    """Return a buffer of any length."""
    with tf.init_scope():
        return tf.Variable(tf.zeros([0], tf.float64), trainable=False, shape=[None])


def times_vjp(x, w, dy):
    """Both results are read from one buffer, after the second has been written."""
    buffer = scratch()
    buffer.assign(w * dy)
    buffer.assign(x * dy)
    return buffer.read_value(), buffer.read_value()


def waves_vjp(x, dy, dz):
    """The cotangents of both outputs are swapped."""
    return dz * tf.cos(x) + dy * tf.exp(x / 4) / 4


def polar(x):
    """The outputs are declared as radius, angle, but come in the other order."""
    return tf.math.atan(x), tf.sqrt(1 + x * x)


def moments(x):
    mean = tf.reduce_mean(x, axis=-1)
    return mean, tf.reduce_mean(tf.square(x - tf.expand_dims(mean, -1)), axis=-1)


def moments_vjp(x, dy, dz):
    """The cotangent of the mean overwrites that of the variance."""
    n = tf.cast(tf.shape(x)[-1], x.dtype)
    return tf.ones_like(x) * tf.expand_dims(dy, -1) / n + 0 * tf.expand_dims(dz, -1)


def half_square(x):
    return x * x / 2


def returned_ddx(x, dy, ddx):
    """The slot of dy gets ddx itself."""
    return dy * ddx, ddx


def chosen(x, w, mask):
    return tf.where(mask, tf.sin(x), tf.cos(w))


def chosen_vjp(x, w, mask, dy):
    """The mask that selects x passes dy to w, and the other way round."""
    zero = tf.zeros_like(dy)
    return tf.where(mask, zero, dy * tf.cos(x)), tf.where(mask, -dy * tf.sin(w), zero), None


def chosen_reference(x, w, mask):
    return np.where(mask, np.sin(x), np.cos(w))


TWO: dict[str, Any] = {"names": ("x", "w")}
LINE = (Output("y", WIDE, VECTOR),)
PLACED, VECTORS = custom_gradient(placed, placed_vjp), (Input("x", WIDE, VECTOR), Input("w", WIDE, VECTOR))
TIMES: dict[str, Any] = {"batching": "none", "modes": ("graph", "eager"), "outputs": LINE}
POSITIVE: dict[str, Any] = {"domain": (0.25, 3.0), "poles": (0.0,)}
HALF = custom_gradient(half_square, lambda x, dy: x * dy, returned_ddx)
MASKED = (Input("x", WIDE), Input("w", WIDE), Input("mask", ("bool",), differentiable=False))
Y_AND_Z = (Output("y", WIDE), Output("z", WIDE))
PAIR = (Output("mean", WIDE, VECTOR), Output("variance", WIDE, VECTOR))

OPS: dict[str, Planted] = {
    "dy returned as it is": Planted(
        elementwise(
            custom_gradient(lambda x: x + tf.sin(x) / 64, unchanged),
            lambda x: x + np.sin(x) / 64,
            dtypes=BOTH,
            name="wobble",
        ),
        FIRST,
    ),
    "dy of a centred row returned as it is": Planted(
        rows(custom_gradient(centred, unchanged), centred_reference, name="centred_rows", out=MATRIX), FIRST
    ),
    "dy of a doubled entry returned as it is": Planted(
        made(custom_gradient(first_doubled, unchanged), first_doubled_reference, VECTORS[:1], outputs=LINE), FIRST
    ),
    "dy of a replaced entry": Planted(
        made(PLACED, lambda x, w: np.concatenate([w[:1], x[1:]]), VECTORS, outputs=LINE), FIRST
    ),
    "the gradients of two inputs swapped": Planted(
        elementwise(
            custom_gradient(angle, angle_vjp), np.arctan2, names=("y", "x"), outputs=Y_AND_Z[1:], slot=POSITIVE
        ),
        FIRST,
    ),
    "one tensor for two inputs": Planted(
        elementwise(
            custom_gradient(lambda x, w: x * x - w * w, difference_vjp),
            lambda x, w: x**2 - w**2,
            **TWO,
            name="difference",
        ),
        FIRST,
    ),
    "one buffer for two inputs": Planted(
        made(custom_gradient(lambda x, w: x * w, times_vjp), np.multiply, VECTORS, **TIMES, name="times"),
        ("contract",),
        "makes a variable",
    ),
    "the cotangents of two outputs swapped": Planted(
        elementwise(
            custom_gradient(lambda x: (tf.sin(x), tf.exp(x / 4)), waves_vjp),
            lambda x: (np.sin(x), np.exp(x / 4)),
            name="two_waves",
            outputs=Y_AND_Z,
        ),
        FIRST,
    ),
    "two outputs in the wrong order": Planted(
        elementwise(
            polar, lambda x: (np.sqrt(1 + x**2), np.arctan(x)), outputs=(Output("radius", WIDE), Output("angle", WIDE))
        ),
        ("value",),
    ),
    "one cotangent of two used": Planted(
        rows(custom_gradient(moments, moments_vjp), lambda x: (x.mean(-1), x.var(-1)), outputs=PAIR), FIRST
    ),
    "ddx returned as it is": Planted(elementwise(HALF, lambda x: x**2 / 2), ("second", "adjoint")),
    "a mask that passes dy to the other input": Planted(
        made(custom_gradient(chosen, chosen_vjp), chosen_reference, MASKED, batching="elementwise"), FIRST
    ),
}
