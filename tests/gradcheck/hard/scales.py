"""Numbers far from 1: derivatives that overflow or underflow, and wide ranges inside one tensor."""

from typing import Any

import numpy as np
import tensorflow as tf
from mpmath import mp

from ops import FLOATS, Input, InvalidInput, Output, custom_gradient
from tests.gradcheck.hard.exact import Hard, collected
from tests.gradcheck.hard.making import BOTH, SINGLE, elementwise, structured, within


def log_uniform(low, high):
    """Return a ``sample`` of x that spreads over powers of 10, of either sign."""

    def sample(rng, dtype, attrs):
        return {"x": (10 ** rng.uniform(low, high, 24) * rng.choice([-1.0, 1.0], 24)).astype(dtype)}

    return {"sample": sample}


def uneven_rows(rng, dtype, attrs):
    """Draw rows whose numbers are of very different sizes."""
    return {"x": (10 ** rng.uniform(-6, 6, (3, 4)) * rng.choice([-1.0, 1.0], (3, 4))).astype(dtype)}


def refuse_short_rows(inputs, attrs):
    """Refuse rows whose squares underflow or overflow."""
    longest = np.abs(np.asarray(inputs["x"], np.float64)).max(axis=-1)
    if not ((longest > 1e-9) & (longest < 1e9)).all():
        raise InvalidInput("x", "a row is too short or too long", expected="a length near 1", got="another")


def scaled_hypot(x, y):
    s = tf.stop_gradient(tf.maximum(tf.abs(x), tf.abs(y)))
    return s * tf.sqrt(tf.square(x / s) + tf.square(y / s))


def hypot_vjp(x, y, dr):
    r = scaled_hypot(x, y)
    return x / r * dr, y / r * dr


def hypot_vjp_vjp(x, y, dr, ddx, ddy):
    r = scaled_hypot(x, y)
    u, v = x / r, y / r
    turn = (v * ddx - u * ddy) / r * dr
    return v * turn, -u * turn, u * ddx + v * ddy


def cube_root(x):
    return tf.sign(x) * tf.pow(tf.abs(x), tf.constant(1 / 3, x.dtype))


def cube_root_vjp(x, dy):
    root = cube_root(x)
    return dy / (3 * root * root)


def exponential(name, dtype, low, high):
    """Return exp in one dtype, near its largest number."""
    slots = {"x": {"domain": (low, high)}}
    return Hard(elementwise(name, tf.exp, np.exp, {"x": [low, high, 0.0]}, dtypes=(dtype,), slots=slots), mp.exp)


UNEVEN: dict[str, Any] = {
    "inputs": (Input("x", BOTH, ("N", "M")),),
    "outputs": (Output("y", BOTH, ("N",)),),
    "batching": "leading_axis",
    "sample": uneven_rows,
}
UNEVEN_ROWS = [[1e-6, 1.0, 1e6], [3e4, -2e-3, 5.0]]

OPS = collected(
    exponential("exp_at_700", "float64", 650.0, 706.0),
    exponential("exp_at_80", "float32", 70.0, 86.0),
    exponential("exp_at_10", "float16", 7.0, 9.5),
    exponential("exp_at_80_brain", "bfloat16", 70.0, 86.0),
    Hard(
        elementwise(
            "huge_cube", lambda x: 1e30 * x * x * x, lambda x: 1e30 * x**3, {"x": [1e-6, 0.5, -3.0]}, dtypes=BOTH
        ),
        lambda x: mp.mpf(1e30) * x**3,
    ),
    Hard(
        elementwise(
            "overflowing_cube",
            custom_gradient(lambda x: 1e306 * x * x * x, lambda x, dy: 1e306 * 3 * x * x * dy),
            lambda x: 1e306 * x**3,
            {"x": [1e-3, 0.1, -1.0, 3.0]},
            slots={"x": {"domain": (-2.0, 2.0)}},
        ),
        lambda x: mp.mpf(1e306) * x**3,
    ),
    Hard(
        elementwise(
            "overflowing_wave",
            lambda x: 1e300 * tf.sin(1e5 * x),
            lambda x: 1e300 * np.sin(1e5 * x),
            {"x": [1e-5, 0.5, -1.0]},
            slots={"x": {"domain": (-1.0, 1.0)}},
        ),
        lambda x: mp.mpf(1e300) * mp.sin(10**5 * x),
    ),
    Hard(
        elementwise(
            "product_of_extremes",
            lambda x, y: x * y,
            lambda x, y: x * y,
            {"x": [1e-150, 3e-155], "y": [1e150, -2e155]},
            slots={"x": {"domain": (1e-151, 1e-150)}, "y": {"domain": (1e150, 1e151)}},
            outputs=("z",),
        ),
        lambda x, y: x * y,
    ),
    Hard(
        elementwise(
            "quotient_of_extremes",
            lambda x, y: x / y,
            lambda x, y: x / y,
            {"x": [1e-150, 1e100], "y": [1e150, -2e100]},
            slots={"x": {"domain": (1e-101, 1e-100)}, "y": {"domain": (1e150, 1e151), "poles": (0.0,)}},
            outputs=("z",),
        ),
        lambda x, y: x / y,
    ),
    Hard(
        elementwise(
            "square_that_underflows",
            tf.square,
            np.square,
            {"x": [1e-155, 1e-160, -1e-170, 0.0]},
            slots={"x": {"domain": (1e-160, 1e-150)}},
        ),
        lambda x: x * x,
    ),
    Hard(
        elementwise(
            "root_of_tiny",
            tf.sqrt,
            np.sqrt,
            {"x": [1e-30, 1e-12, 4.0]},
            dtypes=BOTH,
            slots={"x": {"domain": (1e-30, 1e-28), "poles": (0.0,)}},
            validate=within(x=(0.0, 1e38)),
        ),
        mp.sqrt,
    ),
    Hard(
        elementwise(
            "logarithm_of_tiny",
            custom_gradient(tf.math.log, lambda x, dy: dy / x),
            np.log,
            {"x": [1e-300, 1e-150, 1.0]},
            slots={"x": {"domain": (1e-300, 1e-290), "poles": (0.0,)}},
            validate=within(x=(0.0, 1e300)),
        ),
        mp.log,
    ),
    Hard(
        elementwise(
            "reciprocal_of_huge",
            lambda x: 1 / x,
            lambda x: 1 / x,
            {"x": [1e150, 1e170, -1e100]},
            slots={"x": {"domain": (1e150, 1e160), "poles": (0.0,)}},
        ),
        lambda x: 1 / x,
    ),
    Hard(
        elementwise(
            "gauss_that_underflows",
            lambda x: tf.exp(-x * x),
            lambda x: np.exp(-x * x),
            {"x": [0.0, 5.0, -26.0, 30.0]},
            dtypes=BOTH,
            slots={"x": {"domain": (-30.0, 30.0)}},
            validate=within(x=(-1e4, 1e4)),
        ),
        lambda x: mp.exp(-x * x),
    ),
    Hard(
        elementwise(
            "logistic_that_underflows",
            tf.sigmoid,
            lambda x: np.exp(-np.logaddexp(0, -x)),
            {"x": [0.0, -40.0, 40.0, -700.0, 750.0]},
            dtypes=FLOATS,
            slots={"x": {"domain": (-100.0, 100.0)}},
        ),
        lambda x: 1 / (1 + mp.exp(-x)),
    ),
    Hard(
        elementwise(
            "cube_root",
            custom_gradient(cube_root, cube_root_vjp),
            np.cbrt,
            {"x": [1e-12, 1.0, -8.0, 0.0]},
            slots={"x": {"poles": (0.0,)}},
        ),
        lambda x: mp.sign(x) * mp.cbrt(abs(x)),
    ),
    Hard(
        elementwise(
            "cube_of_all_sizes",
            lambda x: x * x * x,
            lambda x: x**3,
            {"x": [1e-90, -1e-30, 1.0, 1e30, 1e90]},
            **log_uniform(-90, 90),
        ),
        lambda x: x**3,
    ),
    Hard(
        elementwise(
            "signed_log",
            lambda x: tf.sign(x) * tf.math.log1p(tf.abs(x)),
            lambda x: np.sign(x) * np.log1p(np.abs(x)),
            {"x": [1e-20, 1e20, -3.0]},
            dtypes=BOTH,
            slots={"x": {"kinks": (0.0,)}},
            **log_uniform(-8, 8),
        ),
        lambda x: mp.sign(x) * mp.log1p(abs(x)),
    ),
    Hard(
        elementwise(
            "scaled_hypot",
            custom_gradient(scaled_hypot, hypot_vjp, hypot_vjp_vjp),
            np.hypot,
            {"x": [3e200, 3e-200, 1.0], "y": [4e200, -4e-200, 1e10]},
            slots={"x": {"domain": (1e180, 1e181)}, "y": {"domain": (1e180, 1e181)}},
            outputs=("r",),
            validate=within(x=(1e-300, 1e300)),
        ),
        lambda x, y: mp.sqrt(x * x + y * y),
    ),
    Hard(
        structured(
            "norm_of_uneven_rows",
            lambda x: tf.norm(x, axis=-1),
            lambda x: np.linalg.norm(x, axis=-1),
            {"x": UNEVEN_ROWS},
            validate=refuse_short_rows,
            **UNEVEN,
        ),
        lambda x: [mp.sqrt(mp.fsum(v * v for v in row)) for row in x],
    ),
    Hard(
        structured(
            "sum_of_uneven_cubes",
            custom_gradient(
                lambda x: tf.reduce_sum(x * x * x, axis=-1),
                lambda x, dy: 3 * x * x * dy[:, None],
                lambda x, dy, ddx: (6 * x * dy[:, None] * ddx, tf.reduce_sum(3 * x * x * ddx, axis=-1)),
            ),
            lambda x: (x**3).sum(axis=-1),
            {"x": UNEVEN_ROWS},
            **UNEVEN,
        ),
        lambda x: [mp.fsum(v**3 for v in row) for row in x],
    ),
    Hard(
        elementwise(
            "steep_power",
            lambda x: tf.pow(x, tf.constant(-6.0, x.dtype)),
            lambda x: x**-6.0,
            {"x": [1e-4, 0.5, 1e3]},
            dtypes=SINGLE,
            slots={"x": {"domain": (1e-3, 1e-2), "poles": (0.0,)}},
            validate=within(x=(9e-5, 1e4)),
        ),
        lambda x: x**-6,
    ),
)
