r"""The op of the second-order question: log(1 + eˣ) whose second derivative is declared to be 1 - eˣ.

y = log(1 + eˣ); dy/dx = 1 - 1 / (1 + eˣ); d²y/dx² = 1 - eˣ by declaration, which is not the derivative of dy/dx (that
is σ(x) σ(-x)): it shows that the author chooses the gradient of a gradient. No kinks, no poles.

In float32, x = 1 gives dy/dx = 0.7310586 and d²y/dx² = -1.7182817; x = 100 gives 1.0 and -inf. These are exactly the
question's formulas, and eˣ overflows: y is inf above x = 88.7 in float32 and bfloat16, 11.1 in float16, 709.7 in
float64. ``log1pexp`` is the stable version.

Source: "Difficulties in understanding higher order derivatives for tf.custom_gradient()" (Stack Overflow, 2020). The
answer to it: the gradient of an inner function of x alone returns one value; of x and dy, as here, two.
"""

import numpy as np
import tensorflow as tf

from ops import Array, Arrays, Attrs, Claim, Example, Input, Op, Output, Surrogate, Tensor, custom_gradient


def forward(x: Tensor) -> Tensor:
    """y = log(1 + eˣ)."""
    return tf.math.log(1 + tf.exp(x))


def vjp(x: Tensor, dy: Tensor) -> Tensor:
    """dx = dy (1 - 1 / (1 + eˣ))."""
    return dy * (1 - 1 / (1 + tf.exp(x)))


def vjp_vjp(x: Tensor, dy: Tensor, ddx: Tensor) -> tuple[Tensor, Tensor]:
    """Return dy (1 - eˣ) ddx for x, as declared, and (1 - 1 / (1 + eˣ)) ddx for dy."""
    return ddx * dy * (1 - tf.exp(x)), ddx * (1 - 1 / (1 + tf.exp(x)))


def reference(x: Array) -> Array:
    """y = log(e⁰ + eˣ), without the overflow."""
    return np.logaddexp(0, np.asarray(x, np.float64))


def declared(primals: Arrays, cotangents: Arrays, at: Arrays) -> Arrays:
    """Return dy (x - eˣ), whose derivative in x is the declared second order."""
    (x,), (dy,) = primals, cotangents
    return (dy * (x - np.exp(x)),)


def claim(attrs: Attrs) -> Claim:
    """Claim the derivative at first order and the declared one at second."""
    return Claim(second=Surrogate(declared))


OP = Op(
    name="log1pexp2",
    summary="log(1 + eˣ), with its second derivative declared to be 1 - eˣ",
    doc=__doc__,
    function=custom_gradient(forward, vjp, vjp_vjp),
    reference=reference,
    inputs=(Input("x"),),
    outputs=(Output("y"),),
    source="https://stackoverflow.com/questions/60516977",
    claim=claim,
    batching="elementwise",
    examples=(Example("moderate", {"x": [-3.0, -0.5, 0.0, 1.0, 4.0]}), Example("steep", {"x": [1.0, 8.0, 10.0]})),
)
