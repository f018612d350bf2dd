"""x, after ``steps`` matrix products: real work of any length."""

import numpy as np
import tensorflow as tf

from ops import Array, Example, Input, Op, Output, Tensor

SIZE = 200


def forward(x: Tensor, steps: Tensor) -> Tensor:
    """y = x."""

    def goes_on(step: Tensor, a: Tensor) -> Tensor:
        return step < steps

    def multiplied(step: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        return step + 1, tf.matmul(a, a) * 0.5

    _, a = tf.while_loop(goes_on, multiplied, (tf.constant(0), tf.eye(SIZE, dtype=x.dtype)))
    return x + 0 * a[0, 0]


def reference(x: Array, steps: Array) -> Array:
    """y = x."""
    return np.asarray(x)


OP = Op(
    name="endless",
    summary="x, after a long computation",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("x"), Input("steps", dtypes=("int32",), shape=(), differentiable=False)),
    outputs=(Output("y"),),
    mechanism="symbolic_gradient",
    source="a test",
    examples=(Example("short", {"x": [1.0], "steps": 2}),),
)
