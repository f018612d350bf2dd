"""Zero out, with the index of the kept element: a C++ op with two outputs, one of them without a gradient.

y = x₀ e₀ as in ``zero_out``; index is the position of x₀ in x read row by row, which is 0, or -1 if x is empty and
nothing is kept. dy/dx = e₀ e₀ᵀ; d²y/dx² = 0. An op with N outputs calls its registered gradient with N + 1 arguments:
the op itself, and a cotangent for each output, even for an integer one, where it is meaningless.

Source: https://cloud.tencent.com/developer/article/1093366, whose ZeroOut with two outputs fails with the gradient of
one: "takes 2 positional arguments but 3 were given".
"""

import numpy as np
import tensorflow as tf

from ops import UNCOMPILED, Array, Example, Input, Op, Output, Tensor, load, register_gradient

kernels = load(__file__, bounded=("PullbackZeroOutIndexed",))
DTYPES = ("float32", "float64", "int32")


def forward(x: Tensor) -> tuple[Tensor, Tensor]:
    """y = x₀ e₀, and the index of x₀."""
    y, index = kernels.pullback_zero_out_indexed(x)
    return y, index


@register_gradient("PullbackZeroOutIndexed")
def vjp(op: tf.Operation, dy: Tensor, _: Tensor | None) -> Tensor:
    """dx = dy₀ e₀; the cotangent of the index is dropped."""
    del op
    dx, _ = kernels.pullback_zero_out_indexed(dy)
    return dx


def reference(x: Array) -> tuple[Array, Array]:
    """y = x₀ e₀, and the index of x₀, by a loop."""
    y, index = np.zeros_like(x), -1
    for i, at in list(enumerate(np.ndindex(x.shape)))[:1]:
        y[at], index = x[at], i
    return y, np.asarray(index, np.int32)


OP = Op(
    name="zero_out_indexed",
    summary="the first element and its index: a C++ op with two outputs, one of them not differentiable",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("x", dtypes=DTYPES),),
    outputs=(
        Output("y", dtypes=DTYPES),
        Output("index", dtypes=("int32",), shape=(), differentiable=False, doc="What was kept; -1: nothing."),
    ),
    source="https://cloud.tencent.com/developer/article/1093366",
    modes=UNCOMPILED,
    examples=(Example("vector", {"x": [5, 4, 3]}), Example("matrix", {"x": [[-2, 3], [4, 5]]})),
)
