r"""Gradient reversal: the identity forward, the cotangent times -λ backward, by each of TensorFlow's three mechanisms.

y = x; dy/dx = -λ, the derivative of -λ x and not of x; d²y/dx² = 0, with λ the attribute ``strength``; 0 stops the
gradient. No kinks, no poles.

The three mechanisms agree bit for bit where x is finite. The third is t + stop_gradient(f - t) with f = x and t = -λ x,
arranged as stop_gradient(x) - λ (x - stop_gradient(x)) to be exact: the bracket is +0, so nothing is rounded, nothing
overflows in λ x and a -0 stays one. At ±inf and NaN the bracket is NaN: this mechanism refuses them, the others do not.

Source: Ganin et al., "Domain-Adversarial Training of Neural Networks", JMLR 17 (2016).
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
    Claim,
    Example,
    Input,
    InvalidInput,
    Op,
    Output,
    Surrogate,
    Tensor,
    custom_gradient,
    override,
)


class ReversalAttrs(Attrs):
    """λ, and how the gradient is attached: the values are the same."""

    strength: float = Field(default=1.0, ge=0, description="λ: the cotangent is multiplied by -λ")
    mechanism: Literal["custom_gradient", "override_map", "stop_gradient"] = "custom_gradient"


def forward(x: Tensor, *, strength: Tensor) -> Tensor:
    """y = x."""
    return tf.identity(x)


def vjp(x: Tensor, dy: Tensor, *, strength: Tensor) -> Tensor:
    """dx = -λ dy."""
    return -dy * strength


def vjp_vjp(x: Tensor, dy: Tensor, ddx: Tensor, *, strength: Tensor) -> tuple[Tensor, Tensor]:
    """Return 0 for x and -λ ddx for dy."""
    return tf.zeros_like(x), -ddx * strength


def identity_gradient(op: tf.Operation, dy: Tensor, *, strength: Tensor) -> Tensor:
    """dx = -λ dy, as the gradient of the TensorFlow op ``Identity``."""
    return -dy * strength


def stopped(x: Tensor, *, strength: Tensor) -> Tensor:
    """y = x - λ (x - x), with all but the middle x frozen."""
    frozen = tf.stop_gradient(x)
    return frozen - strength * (x - frozen)


MECHANISMS = {
    "custom_gradient": custom_gradient(forward, vjp, vjp_vjp),
    "override_map": override({"Identity": identity_gradient}, forward, numbers=("strength",)),
    "stop_gradient": stopped,
}


def gradient_reversal(x: Tensor, *, strength: Tensor, mechanism: str) -> Tensor:
    """y = x, with the reversed gradient by one of the mechanisms."""
    return MECHANISMS[mechanism](x, strength=strength)


def reference(x: Array, *, strength: float, mechanism: str) -> Array:
    """y = x."""
    return np.asarray(x, np.float64)


def validate(inputs: Mapping[str, Array], attrs: ReversalAttrs) -> None:
    """Refuse x that is not finite where the mechanism cannot carry it."""
    if attrs.mechanism != "stop_gradient":
        return
    wrong = np.argwhere(~np.isfinite(np.asarray(inputs["x"], np.float64)))
    if len(wrong):
        index = tuple(int(i) for i in wrong[0])
        message = "the mechanism stop_gradient takes finite x only"
        raise InvalidInput("x", message, expected="a finite number", got=str(inputs["x"][index]), index=index)


def reversed_line(primals: Arrays, at: Arrays, *, strength: float) -> Arrays:
    """Return -λ x, whose derivative this gradient is."""
    return (-strength * primals[0],)


def claim(attrs: ReversalAttrs) -> Claim:
    """Claim the derivative of -λ x, whatever the mechanism."""
    return Claim(first=Surrogate(partial(reversed_line, strength=attrs.strength)))


X = [[-2.5, -0.5, 0.0], [0.25, 1.0, 3.0]]
OP = Op(
    name="gradient_reversal",
    summary="the identity, whose gradient is reversed: -λ dy",
    doc=__doc__,
    function=gradient_reversal,
    reference=reference,
    inputs=(Input("x"),),
    outputs=(Output("y"),),
    attrs=ReversalAttrs,
    mechanism="by_attribute",
    source="https://jmlr.org/papers/v17/15-239.html",
    claim=claim,
    batching="elementwise",
    validate=validate,
    examples=(
        Example("custom_gradient", {"x": X}),
        Example("override_map", {"x": X}, {"mechanism": "override_map", "strength": 0.5}),
        Example("stop_gradient", {"x": X}, {"mechanism": "stop_gradient", "strength": 0.5}),
    ),
)
