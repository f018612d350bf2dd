"""Faults in numbers that others hide: outputs and inputs in units that are many orders of magnitude apart."""

import numpy as np
import tensorflow as tf

from ops import Example, Input, Output, custom_gradient
from tests.gradcheck.planting import Planted
from tests.gradcheck.wrong.making import BOTH, WIDE, made

FIRST, SECOND = ("derivative",), ("second",)
FAR, NEAR = (1e-12, 1e-4, 1.0, 1e4, 1e12), (1e-6, 1.0, 1e6)


def scaled(units, of_x, of_second=None):
    """Return x² in these units as one output; its first and second order have other factors."""

    def constant(x, *factors):
        return tf.constant(np.prod([units, *factors], axis=0), x.dtype)

    def forward(x):
        return x * x * constant(x)

    def vjp(x, dy):
        return 2 * x * dy * constant(x, of_x)

    def vjp_vjp(x, dy, ddx):
        second = constant(x, of_second or of_x)
        return 2 * dy * ddx * second, 2 * x * ddx * constant(x, of_x)

    return custom_gradient(forward, vjp, vjp_vjp)


def energy(of_x, of_second):
    """Return an op that sums x² in the units ``FAR``; its first and second order have other factors."""

    def forward(x):
        return tf.reduce_sum(x * x * tf.constant(FAR, x.dtype), axis=-1)

    def vjp(x, dy):
        return 2 * x * dy[..., None] * tf.constant(np.multiply(FAR, of_x), x.dtype)

    def vjp_vjp(x, dy, ddx):
        of_x_slot, of_dy_slot = (tf.constant(np.multiply(FAR, factors), x.dtype) for factors in (of_second, of_x))
        return 2 * dy[..., None] * ddx * of_x_slot, tf.reduce_sum(2 * x * ddx * of_dy_slot, axis=-1)

    def reference(x):
        return np.sum(x * x * np.array(FAR), axis=-1)

    return made(
        custom_gradient(forward, vjp, vjp_vjp),
        reference,
        [Input("x", WIDE, ("...", len(FAR)))],
        name="hidden_energy",
        outputs=(Output("y", WIDE, ("...",)),),
        batching="leading_axes",
        examples=(Example("one", {"x": [float(i + 1) for i in range(len(FAR))]}),),
    )


def mixed(factor):
    """Return (p², m p, m²) of a pressure in Pa and a mass in ng, whose gradient has a factor for the mass."""

    def forward(x):
        p, m = x[..., 0], x[..., 1]
        return tf.stack([p * p, 1e-20 * m * p, m * m], axis=-1)

    def vjp(x, dy):
        p, m, a, b, c = x[..., 0], x[..., 1], dy[..., 0], dy[..., 1], dy[..., 2]
        return tf.stack([2 * p * a + 1e-20 * m * b, (1e-20 * p * b + 2 * m * c) * factor], axis=-1)

    return custom_gradient(forward, vjp)


def op(name, function, units, dtypes=WIDE):
    def reference(x):
        return x * x * np.array(units)

    size = len(units)
    return made(
        function,
        reference,
        [Input("x", dtypes, ("...", size))],
        name=name,
        outputs=(Output("y", dtypes, ("...", size)),),
        batching="leading_axes",
        examples=(Example("one", {"x": [float(i + 1) for i in range(size)]}),),
    )


def mixed_reference(x):
    p, m = np.moveaxis(x, -1, 0)
    return np.stack([p * p, 1e-20 * m * p, m * m], axis=-1)


OPS = {
    "an output in small units, a thousand times too large": Planted(
        op("hidden_thousand", scaled(FAR, (-1000, 1, 1, 1, 1)), FAR), FIRST
    ),
    "an output in small units, 1 % off": Planted(op("hidden_percent", scaled(FAR, (1.01, 1, 1, 1, 1)), FAR), FIRST),
    "an output in units in between, 1 % off": Planted(
        op("hidden_between", scaled(FAR, (1, 1, 0.99, 1, 1)), FAR), FIRST
    ),
    "an output in small units in single precision": Planted(
        op("hidden_single", scaled(NEAR, (2, 1, 1)), NEAR, ("float32",)), FIRST
    ),
    "an output in small units in both precisions": Planted(
        op("hidden_in_both", scaled(NEAR, (1.01, 1, 1)), NEAR, BOTH), FIRST
    ),
    "the second order of an output in small units": Planted(
        op("hidden_second", scaled(FAR, (1, 1, 1, 1, 1), (2, 1, 1, 1, 1)), FAR), SECOND
    ),
    "the second order of one output of inputs in small units": Planted(
        energy((1, 1, 1, 1, 1), (1.01, 1, 1, 1, 1)), SECOND
    ),
    "an input in small units": Planted(
        made(
            mixed(1.01),
            mixed_reference,
            [Input("x", WIDE, ("...", 2))],
            name="hidden_mass",
            outputs=(Output("y", WIDE, ("...", 3)),),
            batching="leading_axes",
            examples=(Example("one", {"x": [2e5, 3e-9]}),),
        ),
        FIRST,
    ),
}
