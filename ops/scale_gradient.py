r"""The identity, with a scaled gradient.

y = x; dy/dx = s, the derivative of s x and not of x; d²y/dx² = 0, with s the attribute ``scale``. No kinks, no poles.
s = 0 stops the gradient, s = 1 leaves it, s = -λ reverses it (``gradient_reversal``).

Source: ``scale_gradient`` of Sonnet 2 (https://github.com/google-deepmind/sonnet).
"""

from functools import partial

import numpy as np
import tensorflow as tf
from pydantic import Field

from ops import Array, Arrays, Attrs, Claim, Example, Input, Op, Output, Surrogate, Tensor, custom_gradient


class ScaleAttrs(Attrs):
    """The factor."""

    scale: float = Field(default=1.0, description="s: the cotangent is multiplied by it")


def forward(x: Tensor, *, scale: Tensor) -> Tensor:
    """y = x."""
    return tf.identity(x)


def vjp(x: Tensor, dy: Tensor, *, scale: Tensor) -> Tensor:
    """dx = s dy."""
    return scale * dy


def vjp_vjp(x: Tensor, dy: Tensor, ddx: Tensor, *, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Return 0 for x and s ddx for dy."""
    return tf.zeros_like(x), scale * ddx


def reference(x: Array, *, scale: float) -> Array:
    """y = x."""
    return np.asarray(x, np.float64)


def scaled(primals: Arrays, at: Arrays, *, scale: float) -> Arrays:
    """Return s x, whose derivative this gradient is."""
    return (scale * primals[0],)


def claim(attrs: ScaleAttrs) -> Claim:
    """Claim the derivative of s x."""
    return Claim(first=Surrogate(partial(scaled, scale=attrs.scale)))


X = [[-2.5, -0.5, 0.0], [0.25, 1.0, 3.0]]
OP = Op(
    name="scale_gradient",
    summary="the identity, whose gradient is scaled: s dy",
    doc=__doc__,
    function=custom_gradient(forward, vjp, vjp_vjp),
    reference=reference,
    inputs=(Input("x"),),
    outputs=(Output("y"),),
    attrs=ScaleAttrs,
    source="https://sonnet.readthedocs.io/en/latest/api.html#scale-gradient",
    claim=claim,
    batching="elementwise",
    examples=(
        Example("half", {"x": X}, {"scale": 0.5}),
        Example("reversed", {"x": X}, {"scale": -2.0}),
        Example("stopped", {"x": X}, {"scale": 0.0}),
    ),
)
