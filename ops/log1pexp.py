r"""Softplus, stable at every order: log(1 + eˣ).

y = max(x, 0) + log1p(e^(-|x|)); with σ the logistic function, dy/dx = σ(x) and d²y/dx² = σ(x) σ(-x). Smooth
everywhere; x = 100 gives 100, 1, 0 and x = -100 underflows to 0, 0, 0 without a NaN on the way, at any order: every
formula is in σ, which is bounded, never in eˣ, which is not.

Source: Mächler, "Accurately computing log(1 - exp(-|a|))" (2012), section 4, for the stable forward.
"""

import numpy as np
import tensorflow as tf

from ops import Array, Example, Input, Op, Output, Tensor, custom_gradient


def forward(x: Tensor) -> Tensor:
    """y = max(x, 0) + log1p(e^(-|x|))."""
    return tf.maximum(x, 0) + tf.math.log1p(tf.exp(-tf.abs(x)))


def vjp(x: Tensor, dy: Tensor) -> Tensor:
    """dx = σ(x) dy."""
    return dy * tf.sigmoid(x)


def vjp_vjp(x: Tensor, dy: Tensor, ddx: Tensor) -> tuple[Tensor, Tensor]:
    """Return σ(x) σ(-x) dy ddx for x and σ(x) ddx for dy."""
    return ddx * dy * tf.sigmoid(x) * tf.sigmoid(-x), ddx * tf.sigmoid(x)


def reference(x: Array) -> Array:
    """y = log(e⁰ + eˣ)."""
    return np.logaddexp(0, x)


OP = Op(
    name="log1pexp",
    summary="log(1 + eˣ), with stable gradients of every order",
    doc=__doc__,
    function=custom_gradient(forward, vjp, vjp_vjp),
    reference=reference,
    inputs=(Input("x", domain=(-100.0, 100.0)),),
    outputs=(Output("y"),),
    source="https://cran.r-project.org/web/packages/Rmpfr/vignettes/log1mexp-note.pdf",
    batching="elementwise",
    examples=(Example("moderate", {"x": [-3.0, -0.5, 0.0, 1.0, 4.0]}), Example("extreme", {"x": [-100.0, 100.0]})),
)
