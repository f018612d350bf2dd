"""Ops that are defined on a part of the line only, or have poles, kinks and ties."""

import numpy as np
import tensorflow as tf
from mpmath import mp
from pydantic import Field

from ops import FLOATS, Attrs, Example, Input, InvalidInput, Output, custom_gradient
from tests.gradcheck.hard.exact import Hard, collected
from tests.gradcheck.hard.making import BOTH, WIDE, elementwise, structured, within


class PowerAttrs(Attrs):
    """The exponent."""

    p: float = Field(default=0.5, ge=-8, le=8)


class HuberAttrs(Attrs):
    """Where the parabola ends."""

    delta: float = Field(default=1.0, gt=0)


def of_x(name, function, reference, x, *, slot, **changes):
    return elementwise(name, function, reference, {"x": x}, slots={"x": slot}, **changes)


def huber(x, *, delta):
    size = tf.abs(x)
    return tf.where(size <= delta, x * x / 2, delta * (size - delta / 2))


def huber_reference(x, *, delta):
    size = np.abs(x)
    return np.where(size <= delta, x * x / 2, delta * (size - delta / 2))


def simplex(rng, dtype, attrs):
    """Draw rows of positive numbers whose sum is 1."""
    return {"p": rng.dirichlet([2.0, 2.0, 2.0, 2.0], 3).astype(dtype)}


def disc(rng, dtype, attrs):
    """Draw points within the unit circle."""
    angle, radius = rng.uniform(-np.pi, np.pi, 20), rng.uniform(0.05, 0.999, 20)
    return {"x": (radius * np.cos(angle)).astype(dtype), "y": (radius * np.sin(angle)).astype(dtype)}


def require_inside(inputs, attrs):
    """Refuse points on the unit circle, where the derivative is infinite, or outside it."""
    x, y = (np.asarray(inputs[name], np.float64) for name in "xy")
    if not (np.hypot(x, y) < 0.9999).all():
        raise InvalidInput("x", "the point is not inside the circle", expected="x² + y² < 1", got="another point")


def is_short(inputs, attrs):
    """Report a row of length 0, or one whose squares underflow."""
    return bool((np.abs(np.asarray(inputs["x"], np.float64)).max(axis=-1) < 1e-9).any())


POSITIVE = within(x=(0.0, 1e30))
UP_TO_1 = within(x=(-1.0, 1.0))

OPS = collected(
    Hard(
        of_x(
            "log_up_to_5",
            tf.math.log,
            np.log,
            [1e-5, 1.0, 5.0],
            slot={"domain": (0.0, 5.0), "poles": (0.0,)},
            dtypes=BOTH,
            validate=POSITIVE,
        ),
        mp.log,
    ),
    Hard(
        of_x(
            "root",
            custom_gradient(tf.sqrt, lambda x, dy: dy / (2 * tf.sqrt(x))),
            np.sqrt,
            [0.0, 1e-6, 4.0],
            slot={"domain": (0.0, 4.0), "poles": (0.0,)},
            dtypes=FLOATS,
            validate=within(x=(0.0, 6e4)),
        ),
        mp.sqrt,
    ),
    Hard(
        of_x(
            "arccosine",
            tf.math.acos,
            np.arccos,
            [-0.9999, 0.0, 0.75],
            slot={"domain": (-1.0, 1.0), "poles": (-1.0, 1.0)},
            dtypes=BOTH,
            validate=UP_TO_1,
        ),
        mp.acos,
    ),
    Hard(
        of_x(
            "atanh_unguarded",
            custom_gradient(tf.math.atanh, lambda x, dy: dy / ((1 - x) * (1 + x))),
            np.arctanh,
            [-0.999, 0.0, 0.5],
            slot={"domain": (-0.99, 0.99), "poles": (-1.0, 1.0)},
        ),
        mp.atanh,
    ),
    Hard(
        of_x(
            "power",
            custom_gradient(lambda x, *, p: tf.pow(x, p), lambda x, dy, *, p: p * tf.pow(x, p - 1) * dy),
            lambda x, *, p: np.power(x, p),
            [0.01, 1.0, 9.0],
            slot={"domain": (0.01, 10.0), "poles": (0.0,)},
            dtypes=BOTH,
            attrs=PowerAttrs,
            validate=within(x=(1e-3, 1e3)),
            examples=(
                Example("root", {"x": [0.01, 1.0, 9.0]}),
                Example("negative", {"x": [0.01, 1.0, 9.0]}, {"p": -2.5}),
                Example("square", {"x": [0.01, 1.0, 9.0]}, {"p": 2.0}),
            ),
        ),
        lambda x, *, p: mp.power(x, mp.mpf(p)),
    ),
    Hard(
        elementwise(
            "power_of_two_inputs",
            tf.pow,
            np.power,
            {"x": [0.5, 1.0, 9.0], "p": [2.0, -1.0, 0.5]},
            slots={"x": {"domain": (0.1, 10.0), "poles": (0.0,)}},
            validate=within(x=(1e-2, 1e2), p=(-9.0, 9.0)),
            outputs=("y",),
        ),
        mp.power,
    ),
    Hard(
        of_x(
            "log_far_out", tf.math.log, np.log, [1e3, 5e3], slot={"domain": (1e3, 1e4)}, validate=within(x=(1.0, 1e9))
        ),
        mp.log,
    ),
    Hard(
        of_x(
            "sine_far_out",
            tf.sin,
            np.sin,
            [1e3, 9999.5],
            slot={"domain": (1e3, 1e4)},
            dtypes=BOTH,
            validate=within(x=(0.0, 1e5)),
        ),
        mp.sin,
    ),
    Hard(
        of_x(
            "reciprocal_of_tiny",
            lambda x: 1 / x,
            lambda x: 1 / x,
            [1e-8, 5e-7],
            slot={"domain": (1e-8, 1e-6), "poles": (0.0,)},
            dtypes=BOTH,
            validate=within(x=(9e-9, 1.0)),
        ),
        lambda x: 1 / x,
    ),
    Hard(
        of_x(
            "tangent", tf.tan, np.tan, [0.0, 1.5, -1.57], slot={"domain": (-1.5, 1.5)}, validate=within(x=(-1.57, 1.57))
        ),
        mp.tan,
    ),
    Hard(
        structured(
            "entropy",
            custom_gradient(
                lambda p: -tf.reduce_sum(p * tf.math.log(p), axis=-1), lambda p, dy: -(tf.math.log(p) + 1) * dy[:, None]
            ),
            lambda p: -(p * np.log(p)).sum(axis=-1),
            {"p": [[0.7, 0.2, 0.1], [0.5, 0.25, 0.25]]},
            inputs=(Input("p", BOTH, ("N", "M"), domain=(0.01, 1.0), poles=(0.0,)),),
            outputs=(Output("y", BOTH, ("N",)),),
            batching="leading_axis",
            sample=simplex,
            validate=within(p=(1e-12, 1.0)),
        ),
        lambda p: [-mp.fsum(v * mp.log(v) for v in row) for row in p],
    ),
    Hard(
        elementwise(
            "half_circle",
            lambda x, y: tf.sqrt((1 - x * x) - y * y),
            lambda x, y: np.sqrt((1 - x * x) - y * y),
            {"x": [0.0, 0.6, 0.7], "y": [0.0, 0.7, -0.7]},
            dtypes=WIDE,
            outputs=("z",),
            sample=disc,
            validate=require_inside,
        ),
        lambda x, y: mp.sqrt(1 - x * x - y * y),
    ),
    Hard(
        structured(
            "length",
            lambda x: tf.sqrt(tf.reduce_sum(x * x, axis=-1)),
            lambda x: np.linalg.norm(x, axis=-1),
            {"x": [[3.0, 4.0], [1.0, 0.0]]},
            inputs=(Input("x", BOTH, ("N", "M")),),
            outputs=(Output("y", BOTH, ("N",)),),
            batching="leading_axis",
            singular=is_short,
            validate=within(x=(-1e9, 1e9)),
        ),
        lambda x: [mp.sqrt(mp.fsum(v * v for v in row)) for row in x],
    ),
    Hard(
        of_x(
            "huber",
            custom_gradient(huber, lambda x, dy, *, delta: tf.clip_by_value(x, -delta, delta) * dy),
            huber_reference,
            [0.0, 1.0, -0.999, 2.5],
            slot={"kinks": (-1.0, 1.0)},
            dtypes=BOTH,
            attrs=HuberAttrs,
        )
    ),
)
