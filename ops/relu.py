"""Rectifier: y = max(x, 0). A C++ op whose gradient is also given in C++, and only there.

dy/dx = 1 where x > 0 and 0 where x <= 0; d²y/dx² = 0. At the kink, 0, the gradient is 0. NaN propagates to y; the
gradient is dy there. A y of 0 is +0.

``REGISTER_OP_GRADIENT`` makes the gradient a function of graphs, PullbackReluGrad(dy, x), which neither tapes nor
``tf.gradients`` use; only the op SymbolicGradient does, through which ``vjp`` calls it. The second order is the
gradient that Python registers for PullbackReluGrad; it is linear in dy and its own adjoint, so it serves every order.

Source: TensorFlow's core/ops/nn_grad.cc, explained in https://cloud.tencent.com/developer/article/1093366.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from ops import (
    UNCOMPILED,
    Array,
    Example,
    Input,
    Op,
    Output,
    Tensor,
    custom_gradient,
    load,
    register_gradient,
    symbolic_gradient,
)

kernels = load(__file__, bounded=("PullbackRelu", "PullbackReluGrad"))
DTYPES = ("float32", "float64")


def forward(x: Tensor) -> Tensor:
    """y = max(x, 0)."""
    return kernels.pullback_relu(x)


def vjp(x: Tensor, dy: Tensor) -> Tensor:
    """dx = dy where x > 0, else 0, computed in C++."""
    return symbolic_gradient(forward, x, dy)


@register_gradient("PullbackReluGrad")
def grad_vjp(op: tf.Operation, ddx: Tensor) -> tuple[Tensor, Tensor]:
    """Return, for PullbackReluGrad(dy, x), ddx where x > 0, else 0, for dy; and 0 for x."""
    _, x = op.inputs
    return kernels.pullback_relu_grad(ddx, x), tf.zeros_like(x)


def vjp_vjp(x: Tensor, dy: Tensor, ddx: Tensor) -> tuple[Any, Any]:
    """Return the gradient registered for PullbackReluGrad, for x and for dy."""
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch([x, dy])
        dx = kernels.pullback_relu_grad(dy, x)
    x_slot, dy_slot = tape.gradient(dx, (x, dy), output_gradients=ddx)
    return x_slot, dy_slot


def reference(x: Array) -> Array:
    """y = max(x, 0)."""
    return np.maximum(x, 0)


OP = Op(
    name="relu",
    summary="max(x, 0): a C++ op with its gradient given in C++ alone",
    doc=__doc__,
    function=custom_gradient(forward, vjp, vjp_vjp),
    reference=reference,
    inputs=(Input("x", dtypes=DTYPES, kinks=(0.0,)),),
    outputs=(Output("y", dtypes=DTYPES),),
    source="https://cloud.tencent.com/developer/article/1093366",
    modes=UNCOMPILED,
    batching="elementwise",
    examples=(
        Example("either_side", {"x": [-1.5, -0.25, 0.5, 2.0]}),
        Example("at_the_kink", {"x": [0.0, 1.0]}),
    ),
)
