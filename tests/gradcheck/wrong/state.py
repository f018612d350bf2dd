"""Ops with a state: a result that changes from one trace to the next, or from one call to the next."""

import functools
import itertools
import sys
import time

import numpy as np
import tensorflow as tf

from ops import Input, Output, custom_gradient
from tests.gradcheck.planting import Planted
from tests.gradcheck.wrong.cubes import cube, cube_reference, cube_vjp
from tests.gradcheck.wrong.making import BOTH, WIDE, elementwise, made

TRACES = ("retrace",)
CALLS = ("determinism",)
VECTOR = ("N",)


def counted():
    """Return x³ with a gradient that grows with each trace, by a counter in a closure."""
    count = 0

    def counted_vjp(x, dy):
        nonlocal count
        count += 1
        return (1 + 1e-3 * count) * cube_vjp(x, dy)

    return custom_gradient(cube, counted_vjp)


SERIAL = itertools.count()


def numbered_sine(x):
    """Each trace multiplies by a slightly larger constant."""
    return tf.sin(x) * (1 + 1e-6 * next(SERIAL))


def with_history(x, dy, history=[]):  # noqa: B006 - the planted fault
    """The default list keeps an entry for each trace."""
    history.append(1e-3)
    return cube_vjp(x, dy) * (1 + sum(history))


def second_in_turn():
    """Return x³ with a second order that takes one of three factors in turn."""
    factors = itertools.cycle((1.0, 1.25, 1.5))

    def in_turn(x, dy, ddx):
        return next(factors) * 6 * x * dy * ddx, 3 * x * x * ddx

    return custom_gradient(cube, cube_vjp, in_turn)


def dithered(x, dy):
    """NumPy draws the dither when the gradient is traced: a constant of the trace."""
    return cube_vjp(x, dy) * (1 + 1e-6 * float(np.random.default_rng().uniform()))


def by_the_clock(x, dy):
    """The nanoseconds at the time of tracing salt the gradient."""
    return cube_vjp(x, dy) * (1 + 1e-9 * (time.perf_counter_ns() % 9973))


def by_identity(x, dy):
    """The address of the tensor object, which differs from trace to trace, is in the factor."""
    return cube_vjp(x, dy) * (1 + 1e-6 * (id(x) // 16 % 1009))


def seeded_by_trace():
    """Return a noisy x³, whose noise has a seed that grows with each trace."""
    seeds = itertools.count(1)

    def noisy(x, dy):
        noise = tf.random.stateless_normal(tf.shape(x), (next(seeds), 7), dtype=x.dtype)
        return cube_vjp(x, dy) + 1e-3 * noise * dy

    return custom_gradient(cube, noisy)


@functools.cache
def variable(name):
    """Return the variable of this name, which is 0 at first."""
    with tf.init_scope():
        return tf.Variable(tf.zeros([], tf.float64), trainable=False, name=name)


def worn(x, dy):
    """Each call adds to a variable that scales the gradient."""
    calls = variable("calls")
    calls.assign_add(tf.ones([], tf.float64))
    return cube_vjp(x, dy) * (1 + 1e-3 * calls.read_value())


def centred(x):
    """Subtract a moving average of the mean, which each call updates."""
    average = variable("average")
    average.assign(0.9 * average.read_value() + 0.1 * tf.reduce_mean(tf.tanh(x)))
    return x * x - average.read_value()


def jittered(x, dy):
    """Random noise of a millionth."""
    return cube_vjp(x, dy) * (1 + tf.random.uniform(tf.shape(x), -1e-6, 1e-6, dtype=x.dtype))


def dropped(x):
    """A dropout that also drops when it should not."""
    kept = tf.random.uniform(tf.shape(x), dtype=x.dtype) > 0.125
    return tf.where(kept, tf.tanh(x), tf.zeros_like(x))


def second_jittered(x, dy, ddx):
    """Random noise at second order alone."""
    noise = 1e-3 * tf.random.normal(tf.shape(x), dtype=x.dtype)
    return (6 + noise) * x * dy * ddx, 3 * x * x * ddx


def overwriting(x, dy):
    """The trace replaces a function of TensorFlow, for all ops."""
    tf.nn.softsign = tf.tanh
    return cube_vjp(x, dy)


def shallow(x, dy):
    """The trace lowers the recursion limit, for all ops."""
    sys.setrecursionlimit(sys.getrecursionlimit() - 1)
    return cube_vjp(x, dy)


def leaving(x, dy):
    """The trace raises what is no ``Exception``."""
    raise GeneratorExit


NUMBERS = (Input("x", WIDE, VECTOR),)

OPS: dict[str, Planted] = {
    "a counter in a closure": Planted(elementwise(counted(), cube_reference, name="counted"), TRACES),
    "a counter in forward": Planted(elementwise(numbered_sine, np.sin), TRACES),
    "a list as a default": Planted(
        elementwise(custom_gradient(cube, with_history), cube_reference, name="with_history"), TRACES
    ),
    "second order that takes factors in turn": Planted(
        elementwise(second_in_turn(), cube_reference, name="second_in_turn"), TRACES
    ),
    "a random constant of the trace": Planted(
        elementwise(custom_gradient(cube, dithered), cube_reference, name="dithered", dtypes=BOTH), TRACES
    ),
    "the time of the trace": Planted(
        elementwise(custom_gradient(cube, by_the_clock), cube_reference, name="by_the_clock"), TRACES
    ),
    "the address of a tensor": Planted(
        elementwise(custom_gradient(cube, by_identity), cube_reference, name="by_identity"), TRACES
    ),
    "a seed that grows with each trace": Planted(
        made(seeded_by_trace(), cube_reference, NUMBERS, name="seeded_by_trace", outputs=(Output("y", WIDE, VECTOR),)),
        TRACES,
    ),
    "a variable that each gradient changes": Planted(
        elementwise(custom_gradient(cube, worn), cube_reference, name="worn", modes=("graph", "eager")),
        ("contract",),
        "makes a variable",
    ),
    "a moving average that each call changes": Planted(
        made(centred, lambda x: x**2, NUMBERS, outputs=(Output("y", WIDE, VECTOR),), modes=("graph", "eager")),
        ("contract",),
        "makes a variable",
    ),
    "a function of TensorFlow that a trace replaces": Planted(
        elementwise(custom_gradient(cube, overwriting), cube_reference, name="overwriting"),
        ("contract",),
        "changes tf.nn.softsign for all ops",
    ),
    "a recursion limit that a trace changes": Planted(
        elementwise(custom_gradient(cube, shallow), cube_reference, name="shallow"),
        ("contract",),
        "changes the recursion limit for all ops",
    ),
    "an exit in the gradient": Planted(
        elementwise(custom_gradient(cube, leaving), cube_reference, name="leaving"), ("contract",), "GeneratorExit"
    ),
    "random noise in the gradient": Planted(
        elementwise(custom_gradient(cube, jittered), cube_reference, name="jittered"), CALLS
    ),
    "random dropout": Planted(elementwise(dropped, np.tanh, dtypes=BOTH), CALLS),
    "random noise at second order": Planted(
        elementwise(custom_gradient(cube, cube_vjp, second_jittered), cube_reference, name="second_jittered"), CALLS
    ),
}
