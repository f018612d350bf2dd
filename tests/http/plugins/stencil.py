"""r_i = x_{i-1} - 2 x_i + a x_i³ + x_{i+1}, but r_0 = 1; s = x_0 x_1 + a; and n, the number of positive x."""

import numpy as np
import tensorflow as tf

from ops import Array, Example, Input, Op, Output, Tensor

FLOATS = ("float64", "float32")


def forward(x: Tensor, a: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The residuals."""
    padded = tf.pad(x, [[1, 1]])
    inner = padded[:-2] - 2 * x + a * x**3 + padded[2:]
    r = tf.concat([tf.ones_like(x[:1]), inner[1:]], 0)
    return r, x[0] * x[1] + a, tf.reduce_sum(tf.cast(x > 0, tf.int32)) + k


def reference(x: Array, a: Array, k: Array) -> tuple[Array, Array, Array]:
    """The residuals."""
    padded = np.pad(x, 1)
    r = padded[:-2] - 2 * x + a * x**3 + padded[2:]
    return np.concatenate([np.ones(1), r[1:]]), x[0] * x[1] + a, np.sum(x > 0) + k


OP = Op(
    name="stencil",
    summary="residuals with three nonzeros in a row",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(
        Input("x", dtypes=FLOATS, shape=("n",)),
        Input("a", dtypes=FLOATS, shape=()),
        Input("k", dtypes=("int32",), shape=()),
    ),
    outputs=(
        Output("r", dtypes=FLOATS, shape=("n",)),
        Output("s", dtypes=FLOATS, shape=()),
        Output("n", dtypes=("int32",), shape=()),
    ),
    source="a test",
    examples=(Example("four", {"x": [0.5, -1.0, 2.0, 3.0], "a": 0.5, "k": 1}),),
)
