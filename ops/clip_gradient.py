r"""The identity, with its cotangent clipped: element by element, by the norm of the whole, or not at all.

y = x, and with the attribute ``by`` as
- ``value``: dx = dy cut to [low, high];
- ``norm``: dx = dy where |dy| <= limit, dy · limit / |dy| elsewhere, with |dy| the Euclidean norm of the whole tensor;
- ``none``: dx = dy.

d²y/dx² = 0. Clipping is not linear in dy, so dx is not the derivative of any function and there is no jvp; as a
function of dy it has kinks at low, high and |dy| = limit, where ddx passes. dy = 0 gives 0 by norm, not 0/0. The norm
is computed of dy / max|dy|, so that it does not overflow; by norm, dx is NaN where dy is infinite, and everywhere if
any of dy is NaN.

Source: Pascanu, Mikolov and Bengio, "On the difficulty of training recurrent neural networks" (2013), algorithm 1.
"""

from collections.abc import Mapping
from functools import partial
from typing import Literal

import numpy as np
import tensorflow as tf
from pydantic import Field

from ops import (
    Array,
    Arrays,
    Attrs,
    Batching,
    Claim,
    Example,
    Formula,
    Input,
    InvalidInput,
    Op,
    Output,
    Tensor,
    custom_gradient,
)


class ClipAttrs(Attrs):
    """What is clipped, and to what."""

    by: Literal["value", "norm", "none"] = "value"
    low: float = Field(default=-0.5, description="the least element of dx, by value; <= high")
    high: float = Field(default=0.5, description="the greatest element of dx, by value; >= low")
    limit: float = Field(default=0.5, ge=0, description="the greatest norm of dx, by norm")


def norm_parts(dy: Tensor) -> tuple[Tensor, Tensor]:
    """Return s and |dy / s| of the whole tensor, as scalars: s = max|dy|, or 1 where that is 0 or not finite.

    s is frozen, because s |dy / s| does not depend on it. A length of 0 is returned as 1, whose gradient is finite.
    """
    largest = tf.stop_gradient(tf.reduce_max(tf.abs(dy)))
    s = tf.where((largest > 0) & tf.math.is_finite(largest), largest, tf.ones_like(largest))
    squares = tf.reduce_sum(tf.square(dy / s))
    return s, tf.sqrt(tf.where(tf.equal(squares, 0), tf.ones_like(squares), squares))


def forward(x: Tensor, *, by: str, low: Tensor, high: Tensor, limit: Tensor) -> Tensor:
    """y = x."""
    return tf.identity(x)


def vjp(x: Tensor, dy: Tensor, *, by: str, low: Tensor, high: Tensor, limit: Tensor) -> Tensor:
    """dx = dy, clipped."""
    if by == "value":
        return tf.clip_by_value(dy, low, high)
    if by == "norm":
        s, length = norm_parts(dy)
        return tf.where(s * length <= limit, dy, dy / s / length * limit)
    return dy


def vjp_vjp(
    x: Tensor, dy: Tensor, ddx: Tensor, *, by: str, low: Tensor, high: Tensor, limit: Tensor
) -> tuple[Tensor, Tensor]:
    """Return 0 for x and, for dy, ddx where not clipped; else 0 by value, (ddx - u u·ddx) limit / |dy| by norm."""
    of_dy = ddx
    if by == "value":
        of_dy = tf.where((dy >= low) & (dy <= high), ddx, tf.zeros_like(ddx))
    if by == "norm":
        s, length = norm_parts(dy)
        u = dy / s / length
        across = (ddx - u * tf.reduce_sum(u * ddx)) / s / length * limit
        of_dy = tf.where(s * length <= limit, ddx, across)
    return tf.zeros_like(x), of_dy


def reference(x: Array, *, by: str, low: float, high: float, limit: float) -> Array:
    """y = x."""
    return np.asarray(x, np.float64)


def validate(inputs: Mapping[str, Array], attrs: ClipAttrs) -> None:
    """Refuse bounds in the wrong order."""
    if attrs.low > attrs.high:
        raise InvalidInput("low", "low is above high", expected=f"low <= high = {attrs.high}", got=str(attrs.low))


def clipped_by_value(primals: Arrays, cotangents: Arrays, *, low: float, high: float) -> Arrays:
    """Return dy cut to [low, high]."""
    return (np.clip(cotangents[0], low, high),)


def clipped_by_norm(primals: Arrays, cotangents: Arrays, *, limit: float) -> Arrays:
    """Return dy, shortened to the length ``limit`` where it is longer."""
    length = float(np.linalg.norm(np.ravel(cotangents[0])))
    return (cotangents[0] * (1.0 if length <= limit else limit / length),)


def claim(attrs: ClipAttrs) -> Claim:
    """Claim the formula of the clipping, which is not linear; without clipping, the derivative of the identity."""
    match attrs.by:
        case "value":
            return Claim(first=Formula(partial(clipped_by_value, low=attrs.low, high=attrs.high)), linear=False)
        case "norm":
            return Claim(first=Formula(partial(clipped_by_norm, limit=attrs.limit)), linear=False)
        case "none":
            return Claim()


def batching(attrs: ClipAttrs) -> Batching:
    """Return that rows depend on each other by norm, which is that of the whole tensor."""
    return "none" if attrs.by == "norm" else "elementwise"


X = [[-2.5, -0.5, 0.0], [0.25, 1.0, 3.0]]
OP = Op(
    name="clip_gradient",
    summary="the identity, whose gradient is clipped by value or by norm",
    doc=__doc__,
    function=custom_gradient(forward, vjp, vjp_vjp),
    reference=reference,
    inputs=(Input("x"),),
    outputs=(Output("y"),),
    attrs=ClipAttrs,
    source="https://arxiv.org/abs/1211.5063",
    claim=claim,
    batching=batching,
    validate=validate,
    examples=(
        Example("value", {"x": X}),
        Example("norm", {"x": X}, {"by": "norm"}),
        Example("none", {"x": X}, {"by": "none"}),
    ),
)
