"""Gradients that are wrong in some ways to ask for them: for some inputs, many at once, twice, or three times over."""

import itertools

import numpy as np
import tensorflow as tf

from ops import Input, Output, Tensor, custom_gradient
from tests.gradcheck.planting import Planted
from tests.gradcheck.wrong.cubes import cube, cube_reference, cube_vjp
from tests.gradcheck.wrong.making import MATRIX, WIDE, elementwise, made

UNCOMPILED = ("graph", "eager")


def by_side_effect(x, w):
    """The gradient of w takes a factor that only the gradient of x sets, if that is asked for."""
    shared: dict[str, float] = {}

    @tf.custom_gradient
    def of_x(x):
        return tf.sin(x), lambda dy: shared.update(factor=1.0) or tf.cos(x) * dy

    @tf.custom_gradient
    def of_w(s, w):
        return s * w, lambda dy: (w * dy, s * dy)

    @tf.custom_gradient
    def late(w):
        return w + 0, lambda dw: dw * shared.pop("factor", 0.5)

    return of_w(of_x(x), late(late_twice(w)))


def late_twice(w):
    """Lengthen the path of w, so that its gradient is built after that of x."""
    for _ in range(3):
        w = w + 0
    return w


def remembered(x):
    """The gradient of a call is computed once and kept, whatever the next cotangent is."""
    kept: list[Tensor] = []

    @tf.custom_gradient
    def cubed(x):
        def vjp(dy):
            kept.append(cube_vjp(x, dy))
            return kept[0]

        return cube(x), vjp

    return cubed(x)


def in_place(x):
    """Square in place, and return a copy."""
    y = x**3
    x *= 2
    return y


def by_numpy(function, *xs):
    y: Tensor = tf.numpy_function(function, xs, xs[0].dtype, stateful=False)
    y.set_shape(xs[0].shape)
    return y


def cubed_in_place(x):
    return by_numpy(in_place, x)


def scaled_in_place(x, dy):
    """Scale the cotangent in place."""
    dy *= 3 * x * x
    return np.array(dy)


def cube_vjp_vjp(x, dy, ddx):
    return 6 * x * dy * ddx, 3 * x * x * ddx


def frozen(x, dy, ddx):
    """The second order is right, and has no derivative in dy."""
    return 6 * x * tf.stop_gradient(dy) * ddx, 3 * x * x * ddx


def third_by_hand(x, dy, ddx):
    """The third order, by hand, is a quarter too large."""

    def of_x(x):
        return 6 * x

    def third(x, dz):
        return 7.5 * dz

    return custom_gradient(of_x, third)(x) * dy * ddx, 3 * x * x * ddx


def counted():
    """Return x³ with a constant that grows by a unit in the last place with each trace."""
    traces = itertools.count()

    def grown(x):
        return cube(x) * (1 + 2.0**-52 * next(traces))

    return grown


def faintly_random(x, dy):
    """Random numbers as small as rounding."""
    return cube_vjp(x, dy) * (1 + 2.0**-51 * tf.round(tf.random.uniform(tf.shape(x), 0, 4, dtype=x.dtype)))


def worn():
    """Return a sum that grows by a millionth with each call of its NumPy function, which counts them."""
    calls = itertools.count()

    def summed(x):
        return np.sum(x * x, axis=-1) * (1 + 1e-6 * next(calls))

    def rows_of(x):
        y: Tensor = tf.numpy_function(summed, [x], x.dtype)
        y.set_shape(x.shape[:1])
        return y

    def vjp(x, dy):
        return 2 * x * dy[:, tf.newaxis]

    return custom_gradient(rows_of, vjp)


def pair(names=("x", "w")):
    return tuple(Input(name, WIDE) for name in names)


OPS: dict[str, Planted] = {
    "a gradient that another input's gradient completes": Planted(
        made(by_side_effect, lambda x, w: np.sin(x) * w, pair(), batching="elementwise", modes=UNCOMPILED), ("subset",)
    ),
    "a gradient that is computed once for all cotangents": Planted(
        elementwise(remembered, cube_reference, modes=UNCOMPILED), ("directions",)
    ),
    "an input that forward changes": Planted(
        elementwise(custom_gradient(cubed_in_place, cube_vjp), cube_reference, name="cubed_in_place", modes=UNCOMPILED),
        ("mutation",),
        "writes into x[",
    ),
    "a cotangent that the gradient changes": Planted(
        elementwise(
            custom_gradient(cube, lambda x, dy: by_numpy(scaled_in_place, x, dy), cube_vjp_vjp),
            cube_reference,
            name="vjp_in_place",
            modes=UNCOMPILED,
        ),
        ("mutation",),
        "writes into dy[",
    ),
    "a constant that grows by rounding with each trace": Planted(
        elementwise(counted(), cube_reference, name="grown"), ("retrace",), "other operations or constants"
    ),
    "random numbers as small as rounding": Planted(
        elementwise(custom_gradient(cube, faintly_random), cube_reference, name="faintly_random"),
        ("determinism",),
        "draws random numbers: RandomUniform",
    ),
    "a NumPy function that counts its calls": Planted(
        made(
            worn(),
            lambda x: np.sum(x * x, axis=-1),
            (Input("x", WIDE, MATRIX),),
            name="worn_sum",
            outputs=(Output("y", WIDE, ("N",)),),
            modes=UNCOMPILED,
        ),
        ("determinism",),
    ),
}


def frozen_at_zero(x, dy, ddx):
    """The third order is right but at 0."""
    of_x = tf.where(x == 0, tf.stop_gradient(6 * x), 6 * x)
    return of_x * dy * ddx, 3 * x * x * ddx


def squared_by_power(x):
    """The exponent is computed, and so TensorFlow's third order is NaN at 0."""
    return tf.pow(x, tf.cast(tf.size(x) * 0 + 2, x.dtype))


THIRD: dict[str, Planted] = {
    "a third order that is missing in dy": Planted(
        elementwise(custom_gradient(cube, cube_vjp, frozen), cube_reference, name="frozen"), ("higher",)
    ),
    "a third order by hand that is too large": Planted(
        elementwise(custom_gradient(cube, cube_vjp, third_by_hand), cube_reference, name="third_by_hand"), ("higher",)
    ),
    "a third order that is wrong at 0": Planted(
        elementwise(custom_gradient(cube, cube_vjp, frozen_at_zero), cube_reference, name="frozen_at_zero"),
        ("higher",),
    ),
    "a third order that is NaN at 0": Planted(
        elementwise(squared_by_power, lambda x: x * x, name="squared_by_power"), ("finite",), "is nan at x = 0"
    ),
}
"""Wrong ops that pass at the first two orders; the third must be requested."""
