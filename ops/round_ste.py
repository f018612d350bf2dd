r"""Rounding with the straight-through gradient, for quantised networks.

y = x to the nearest integer, halves to the even one; dy/dx = 1, the derivative of the identity and not of the rounding,
which is 0 almost everywhere; d²y/dx² = 0. The rounding jumps at every half, and the gradient is 1 there as elsewhere.

Source: Bengio, Léonard and Courville, "Estimating or Propagating Gradients Through Stochastic Neurons" (2013).
"""

import numpy as np
import tensorflow as tf

from ops import Array, Arrays, Attrs, Claim, Example, Input, Op, Output, Surrogate, Tensor, custom_gradient


def forward(x: Tensor) -> Tensor:
    """y = x to the nearest integer, halves to even."""
    return tf.round(x)


def vjp(x: Tensor, dy: Tensor) -> Tensor:
    """dx = dy."""
    return dy


def vjp_vjp(x: Tensor, dy: Tensor, ddx: Tensor) -> tuple[Tensor, Tensor]:
    """Return 0 for x and ddx for dy."""
    return tf.zeros_like(x), ddx


def reference(x: Array) -> Array:
    """y = x to the nearest integer, halves to even."""
    return np.round(np.asarray(x, np.float64))


def identity(primals: Arrays, at: Arrays) -> Arrays:
    """Return x, whose derivative this gradient is."""
    return (primals[0],)


def claim(attrs: Attrs) -> Claim:
    """Claim the derivative of the identity."""
    return Claim(first=Surrogate(identity))


OP = Op(
    name="round_ste",
    summary="round(x), halves to even, whose gradient passes straight through",
    doc=__doc__,
    function=custom_gradient(forward, vjp, vjp_vjp),
    reference=reference,
    inputs=(Input("x"),),
    outputs=(Output("y"),),
    source="https://arxiv.org/abs/1308.3432",
    claim=claim,
    batching="elementwise",
    examples=(
        Example("between", {"x": [-2.75, -0.25, 0.0, 0.625, 1.25, 3.0]}),
        Example("halves", {"x": [-1.5, -0.5, 0.5, 1.5, 2.5]}),
    ),
)
