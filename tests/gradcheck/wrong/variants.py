"""Faults where an optional input is not sent, or in one dtype of the second type variable."""

import numpy as np
import tensorflow as tf

from ops import UNCOMPILED, Input, InvalidInput, Output, custom_gradient
from ops.relu import kernels
from tests.gradcheck.planting import Planted
from tests.gradcheck.wrong.making import BOTH, WIDE, made


def affine(x, w, b):
    return tf.sin(x) * w if b is None else tf.sin(x) * w + b


def affine_vjp(x, w, b, dy):
    return tf.cos(x) * w * dy, tf.sin(x) * dy, dy


def of_a_bias_of_one(x, w, b):
    return affine(x, w, tf.ones_like(x) if b is None else b)


def without_w(x, w, b, dy):
    """The slope lacks w where there is no b."""
    return tf.cos(x) * (tf.ones_like(w) if b is None else w) * dy, tf.sin(x) * dy, dy


def affine_vjp_vjp(x, w, b, dy, *ddxs):
    """The second derivative in x lacks its sign where there is no b."""
    ddx, ddw, ddb = ddxs
    sign = 1.0 if b is None else -1.0
    of_x = sign * tf.sin(x) * w * dy * ddx + tf.cos(x) * dy * ddw
    of_dy = tf.cos(x) * w * ddx + tf.sin(x) * ddw
    if b is None:
        return of_x, tf.cos(x) * dy * ddx, None, of_dy
    return of_x, tf.cos(x) * dy * ddx, tf.zeros_like(b), of_dy + ddb


def rectified(x, b):
    """Return max(x + b, 0), by a kernel in C++."""
    return kernels.pullback_relu(x if b is None else x + b)


def rectified_reference(x, b):
    return np.maximum(x if b is None else x + b, 0)


def rectified_vjp(x, b, dy):
    dx = kernels.pullback_relu_grad(dy, x if b is None else x + b)
    return dx, dx


def all_without_b(x, b, dy):
    """Without b, the kernel gets the cotangent in the place of x."""
    return rectified_vjp(dy if b is None else x, b, dy)


def in_kernel(function, name):
    inputs = (Input("x", BOTH, kinks=(0.0,)), Input("b", BOTH, optional=True))
    return made(function, rectified_reference, inputs, name=name, modes=UNCOMPILED, batching="elementwise")


def scattered(x, i, dy):
    """Indices of int64 that are equal overwrite each other."""
    added = tf.math.unsorted_segment_sum(dy, i, tf.size(x))
    return (added if i.dtype == tf.int32 else tf.tensor_scatter_nd_update(tf.zeros_like(x), i[:, None], dy)), None


def in_range(inputs, attrs):
    if not ((inputs["i"] >= 0) & (inputs["i"] < len(inputs["x"]))).all():
        raise InvalidInput("i", "out of range", expected="an index", got="another number")


def optional(function, name):
    inputs = (Input("x", BOTH), Input("w", BOTH), Input("b", BOTH, optional=True))
    return made(
        function, lambda x, w, b: np.sin(x) * w + (0 if b is None else b), inputs, name=name, batching="elementwise"
    )


OPS: dict[str, Planted] = {
    "another value without an input": Planted(
        optional(custom_gradient(of_a_bias_of_one, affine_vjp), "bias_of_one"), ("value",), "without b"
    ),
    "a slope that is wrong without an input": Planted(
        optional(custom_gradient(affine, without_w), "slope_without_bias"), ("derivative",), "without b"
    ),
    "a second order that is wrong without an input": Planted(
        optional(custom_gradient(affine, affine_vjp, affine_vjp_vjp), "second_without_bias"), ("second",), "without b"
    ),
    "a kernel in C++ that gets another number without an input": Planted(
        in_kernel(custom_gradient(rectified, all_without_b), "kernel_without_b"), ("derivative",), "without b"
    ),
    "indices of int64 that overwrite each other": Planted(
        made(
            custom_gradient(tf.gather, scattered),
            lambda x, i: x[i],
            (Input("x", WIDE, ("N",)), Input("i", ("int32", "int64"), ("M",), differentiable=False, domain=(0.0, 2.0))),
            outputs=(Output("y", WIDE, ("M",)),),
            validate=in_range,
            sample=lambda rng, dtype, attrs: {"x": rng.uniform(-3, 3, 4), "i": rng.integers(0, 4, 6)},
            name="picked",
        ),
        ("derivative",),
        "with i in int64",
    ),
}
