"""Ops with typical mistakes. Each is a separate plug-in: a file with ``OP = OPS[name]``."""

import numpy as np
import tensorflow as tf

from ops import Example, Function, Input, Op, Output, Tensor, custom_gradient, override

OPS: dict[str, Op] = {}
X = [0.5, 1.0, 2.0]


def op(name: str, function: Function, inputs: str = "x") -> None:
    """Register an op with these inputs, one letter each, and the output y."""
    OPS[name] = Op(
        name=name,
        summary="an op with a mistake",
        doc="y = x.",
        function=function,
        reference=np.asarray,
        inputs=tuple(Input(letter) for letter in inputs),
        outputs=(Output("y"),),
        source="a test",
        examples=(Example("three", dict.fromkeys(inputs, X)),),
    )


@tf.custom_gradient
def bare_zero(x):
    def pull_back(dy):
        return 0

    return 2 * x, pull_back


@tf.custom_gradient
def bare_zero_of_two(x, z):
    def pull_back(dy):
        return dy, 0

    return x + z, pull_back


@tf.custom_gradient
def bare_many(x):
    def pull_back(dy):
        return dy, dy

    return 2 * x, pull_back


@tf.custom_gradient
def bare_few(x, z):
    def pull_back(dy):
        return dy

    return x + z, pull_back


@tf.custom_gradient
def bare_shape(x):
    def pull_back(dy):
        return tf.reduce_sum(dy)

    return 2 * x, pull_back


@tf.custom_gradient
def bare_dtype(x):
    def pull_back(dy):
        return tf.cast(dy, tf.float64)

    return 2 * x, pull_back


@tf.custom_gradient
def bare_none(x):
    def pull_back(dy):
        return None

    return 2 * x, pull_back


def stopped(x):
    return tf.stop_gradient(2 * x)


def twice(x):
    return 2 * x


def vjp_zero(x, dy):
    return 0


def vjp_many(x, dy):
    return dy, dy


def vjp_shape(x, dy):
    return tf.reduce_sum(dy)


def vjp_dtype(x, dy):
    return tf.cast(dy, tf.float64)


def vjp_right(x, dy):
    return 2 * dy


def vjp_vjp_few(x, dy, ddx):
    return 2 * ddx


def vjp_vjp_zero(x, dy, ddx):
    return 0, 2 * ddx


def sign(x):
    return tf.sign(x)


def sign_gradient_without_op(dy):
    return dy


def sign_gradient_with_one_more(op, dy, more):
    return dy


def sign_gradient_zero(op, dy):
    return 0


def sign_gradient(op, dy):
    return dy


def not_registered(x):
    return tf.unique(x).y


def forward_dtype(x):
    return tf.cast(x, tf.float64)


def forward_many(x):
    return x, x


def forward_python(x):
    return 1.0


def raises(x):
    raise RuntimeError("/secret/place/file.py exploded\nin two lines")


def in_python(message: str):
    """Return a function that TensorFlow calls back, and that raises an exception with this message."""

    def fails(x):
        raise RuntimeError(message)

    return lambda x: tf.ensure_shape(tf.py_function(fails, [x], tf.float32), x.shape)


def raises_at_length(x):
    raise RuntimeError("a" * 4_000_000)


def raises_a_surrogate(x):
    raise RuntimeError("\ud800 is half a letter")


def decides_in_python(x: Tensor) -> Tensor:
    return x if tf.reduce_sum(x) > 0 else -x


op("bare_zero", bare_zero)
op("bare_zero_of_two", bare_zero_of_two, "xz")
op("bare_many", bare_many)
op("bare_few", bare_few, "xz")
op("bare_shape", bare_shape)
op("bare_dtype", bare_dtype)
op("bare_none", bare_none)
op("stopped", stopped)
op("helper_zero", custom_gradient(twice, vjp_zero))
op("helper_many", custom_gradient(twice, vjp_many))
op("helper_shape", custom_gradient(twice, vjp_shape))
op("helper_dtype", custom_gradient(twice, vjp_dtype))
op("second_few", custom_gradient(twice, vjp_right, vjp_vjp_few))
op("second_zero", custom_gradient(twice, vjp_right, vjp_vjp_zero))
op("override_few_arguments", override({"Sign": sign_gradient_without_op}, sign))
op("override_many_arguments", override({"Sign": sign_gradient_with_one_more}, sign))
op("override_zero", override({"Sign": sign_gradient_zero}, sign))
op("override_misspelt", override({"sign": sign_gradient}, sign))
op("not_registered", not_registered)
op("forward_dtype", forward_dtype)
op("forward_many", forward_many)
op("forward_python", forward_python)
op("raises", raises)
op("raises_at_length", raises_at_length)
op("raises_a_surrogate", raises_a_surrogate)
op("raises_in_python", in_python("exploded"))
op("raises_a_surrogate_in_python", in_python("\ud800 is half a letter"))
op("decides_in_python", decides_in_python)
