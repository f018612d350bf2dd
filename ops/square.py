r"""Square, the first example of a custom gradient.

y = x²; dy/dx = 2x; d²y/dx² = 2. Smooth everywhere, no kinks, no poles. Integers have a value but no gradient.

Source: the TensorFlow guide to ``tf.custom_gradient`` (https://www.tensorflow.org/api_docs/python/tf/custom_gradient).
"""

import numpy as np

from ops import FLOATS, INTEGERS, Array, Example, Input, Op, Output, Tensor, custom_gradient


def forward(x: Tensor) -> Tensor:
    """y = x²."""
    return x * x


def vjp(x: Tensor, dy: Tensor) -> Tensor:
    """dx = 2x dy."""
    return dy * 2 * x


def vjp_vjp(x: Tensor, dy: Tensor, ddx: Tensor) -> tuple[Tensor, Tensor]:
    """Return 2 dy ddx for x and 2x ddx for dy."""
    return 2 * dy * ddx, 2 * x * ddx


def reference(x: Array) -> Array:
    """y = x²."""
    return np.square(x)


OP = Op(
    name="square",
    summary="x², with its gradient 2x written by hand",
    doc=__doc__,
    function=custom_gradient(forward, vjp, vjp_vjp),
    reference=reference,
    inputs=(Input("x", dtypes=FLOATS + INTEGERS),),
    outputs=(Output("y", dtypes=FLOATS + INTEGERS),),
    source="https://www.tensorflow.org/api_docs/python/tf/custom_gradient",
    batching="elementwise",
    examples=(Example("matrix", {"x": [[1, 2, 3], [4, 5, 6]]}),),
)
