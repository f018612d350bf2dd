"""Kinks and ties, where any subgradient is right, and claims that are not the derivative."""

from functools import partial

import numpy as np
import tensorflow as tf
from pydantic import Field

from ops import FLOATS, Attrs, Claim, Derivative, Formula, Input, Output, Surrogate, custom_gradient
from tests.gradcheck.hard.exact import Hard, collected
from tests.gradcheck.hard.making import BOTH, WIDE, elementwise, structured

TIED = [[1.0, 1.0, -2.0], [0.5, 3.0, 3.0], [2.0, 2.0, 2.0]]
FEW = [0.0, 1.0, -1.0, 2.5]


class LimitAttrs(Attrs):
    """The largest gradient."""

    limit: float = Field(default=1.0, gt=0)


class FactorAttrs(Attrs):
    """The factor of the reversed gradient."""

    factor: float = Field(default=1.0, ge=0)


def of_x(name, function, reference, kinks, **changes):
    return elementwise(name, function, reference, {"x": FEW}, slots={"x": {"kinks": kinks}}, **changes)


def of_rows(name, function, reference, y=("N",)):
    return structured(
        name,
        function,
        reference,
        {"x": TIED},
        inputs=(Input("x", BOTH, ("N", "M")),),
        outputs=(Output("y", BOTH, y),),
        batching="leading_axis",
    )


def first_largest(x, dy):
    """All of dy for the first of the largest numbers."""
    return tf.one_hot(tf.argmax(x, axis=-1), tf.shape(x)[-1], dtype=x.dtype) * dy[:, None]


def median_reference(x):
    return np.sort(x, axis=-1)[:, x.shape[-1] // 2]


def spline(x):
    """A parabola, a line and a constant that meet without a jump, with kinks at -1 and 1."""
    return tf.where(x < -1, x * x, tf.where(x < 1, (3 - x) / 4, tf.fill(tf.shape(x), tf.constant(0.5, x.dtype))))


def clip(x, *, limit):
    return tf.identity(x)


def reverse(x, *, factor):
    return tf.sin(x)


def clip_formula(primals, cotangents, *, limit):
    return (np.clip(cotangents[0], -limit, limit),)


def no_second(primals, cotangents, ddx):
    return (0 * primals[0],)


def clip_claim(attrs):
    return Claim(Formula(partial(clip_formula, limit=attrs.limit)), Formula(no_second), linear=False)


def reverse_formula(primals, cotangents, *, factor):
    return (-factor * np.cos(primals[0]) * cotangents[0],)


def attr_free(reference):
    """Return a reference that ignores the attributes."""

    def ignoring(x, **attrs):
        return reference(x)  # pyright: ignore[reportCallIssue]  # it takes one input

    return ignoring


def leaky_line(primals, at):
    """A line with the slope 1 where the input is positive, else 1/10."""
    return (np.where(at[0] > 0, 1.0, 0.1) * primals[0],)


OPS = collected(
    Hard(of_x("relu6", tf.nn.relu6, lambda x: np.clip(x, 0, 6), (0.0, 6.0), dtypes=FLOATS)),
    Hard(of_x("absolute", tf.abs, np.abs, (0.0,), dtypes=FLOATS)),
    Hard(
        of_x(
            "hinge",
            custom_gradient(lambda x: tf.maximum(1 - x, 0), lambda x, dy: tf.where(x < 1, -dy, tf.zeros_like(dy))),
            lambda x: np.maximum(1 - x, 0),
            (1.0,),
            dtypes=BOTH,
        )
    ),
    Hard(of_x("squared_hinge", lambda x: tf.square(tf.nn.relu(1 - x)), lambda x: np.maximum(1 - x, 0) ** 2, (1.0,))),
    Hard(of_x("spline", spline, lambda x: np.where(x < -1, x * x, np.where(x < 1, (3 - x) / 4, 0.5)), (-1.0, 1.0))),
    Hard(of_x("elu", tf.nn.elu, lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))), (0.0,), dtypes=BOTH)),
    Hard(of_x("cubed_absolute", lambda x: abs(x) ** 3, lambda x: abs(x) ** 3, (), dtypes=BOTH), lambda x: abs(x) ** 3),
    Hard(
        elementwise(
            "larger_of_two",
            tf.maximum,
            np.maximum,
            {"x": [1.0, 2.0, -1.0], "y": [1.0, -2.0, -1.0]},
            dtypes=BOTH,
            outputs=("z",),
        )
    ),
    Hard(of_rows("row_maximum", lambda x: tf.reduce_max(x, axis=-1), lambda x: x.max(axis=-1))),
    Hard(
        of_rows(
            "row_maximum_by_hand",
            custom_gradient(lambda x: tf.reduce_max(x, axis=-1), first_largest),
            lambda x: x.max(axis=-1),
        )
    ),
    Hard(of_rows("row_minimum", lambda x: tf.reduce_min(x, axis=-1), lambda x: x.min(axis=-1))),
    Hard(of_rows("sorted_rows", lambda x: tf.sort(x, axis=-1), lambda x: np.sort(x, axis=-1), ("N", "M"))),
    Hard(of_rows("row_median", lambda x: tf.sort(x, axis=-1)[:, tf.shape(x)[-1] // 2], median_reference)),
    Hard(
        of_rows(
            "total_variation",
            lambda x: tf.reduce_sum(tf.abs(x[:, 1:] - x[:, :-1]), axis=-1),
            lambda x: np.abs(np.diff(x, axis=-1)).sum(axis=-1),
        )
    ),
    Hard(
        of_x(
            "clipped_gradient",
            custom_gradient(clip, lambda x, dy, *, limit: tf.clip_by_value(dy, -limit, limit)),
            attr_free(lambda x: x),
            (),
            dtypes=BOTH,
            attrs=LimitAttrs,
            claim=clip_claim,
        )
    ),
    Hard(
        of_x(
            "reversed_gradient",
            custom_gradient(reverse, lambda x, dy, *, factor: -factor * tf.cos(x) * dy),
            attr_free(np.sin),
            (),
            attrs=FactorAttrs,
            claim=lambda attrs: Claim(Formula(partial(reverse_formula, factor=attrs.factor)), Derivative()),
        )
    ),
    Hard(
        of_x(
            "leaky_gradient",
            custom_gradient(tf.nn.relu, lambda x, dy: tf.where(x > 0, dy, tf.constant(0.1, x.dtype) * dy)),
            lambda x: np.maximum(x, 0),
            (0.0,),
            dtypes=WIDE,
            claim=lambda attrs: Claim(Surrogate(leaky_line)),
        )
    ),
)
