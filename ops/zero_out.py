"""Zero out: y keeps the first element of x and is 0 elsewhere. A C++ op, its gradient registered from Python.

y = x₀ e₀ with e₀ the first unit vector of x, read row by row; dy/dx = e₀ e₀ᵀ; d²y/dx² = 0. The op is linear and its own
adjoint, so dx = zero_out(dy), and the gradient of that gradient is the same registered gradient, at every order. The
other elements have no influence, even NaN and infinity. An empty x has an empty y.

Source: TensorFlow's guide "Create an op", which has this ZeroOut, with its gradient by ``tf.RegisterGradient``.
"""

import numpy as np
import tensorflow as tf

from ops import UNCOMPILED, Array, Example, Input, Op, Output, Tensor, load, register_gradient

kernels = load(__file__, bounded=("PullbackZeroOut",))
DTYPES = ("float32", "float64", "int32")


def forward(x: Tensor) -> Tensor:
    """y = x₀ e₀."""
    return kernels.pullback_zero_out(x)


@register_gradient("PullbackZeroOut")
def vjp(op: tf.Operation, dy: Tensor) -> Tensor:
    """dx = dy₀ e₀: a gradient function gets the op, then a cotangent for each output."""
    del op
    return kernels.pullback_zero_out(dy)


def reference(x: Array) -> Array:
    """y = x₀ e₀, by a loop."""
    y = np.zeros_like(x)
    for at in list(np.ndindex(x.shape))[:1]:
        y[at] = x[at]
    return y


OP = Op(
    name="zero_out",
    summary="the first element, and 0 for the others: a C++ op with a gradient registered from Python",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("x", dtypes=DTYPES),),
    outputs=(Output("y", dtypes=DTYPES),),
    source="https://www.tensorflow.org/guide/create_op",
    modes=UNCOMPILED,
    examples=(
        Example("vector", {"x": [5, 4, 3, 2, 1]}),
        Example("matrix", {"x": [[-2, 3], [4, 5]]}),
        Example("scalar", {"x": 7}),
    ),
)
