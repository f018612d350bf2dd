"""y = sin(x) w + b, or sin(x) w without b."""

import numpy as np
import tensorflow as tf

from ops import Array, Example, Input, Op, Output, Tensor, custom_gradient

DTYPES = ("float32", "float64")
ROW, MATRIX = [[0.5, -1.0]], [[1.0, 0.5, 2.0], [0.25, 1.0, -1.0]]


def forward(x: Tensor, b: Tensor | None, w: Tensor) -> Tensor:
    """y = sin(x) w + b."""
    y = tf.sin(x) @ w
    return y if b is None else y + b


def vjp(x: Tensor, b: Tensor | None, w: Tensor, dy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """dx = cos(x) (dy wᵀ), db = Σ dy, dw = sin(x)ᵀ dy."""
    return tf.cos(x) * (dy @ tf.transpose(w)), tf.reduce_sum(dy, 0), tf.transpose(tf.sin(x)) @ dy


def vjp_vjp(
    x: Tensor, b: Tensor | None, w: Tensor, dy: Tensor, *ddxs: Tensor
) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
    """Return the cotangents of x, b, w and dy."""
    ddx, ddb, ddw = ddxs
    back = dy @ tf.transpose(w)
    of_x = -tf.sin(x) * back * ddx + tf.cos(x) * (dy @ tf.transpose(ddw))
    of_dy = (tf.cos(x) * ddx) @ w + tf.sin(x) @ ddw
    if b is None:
        return of_x, None, tf.transpose(tf.cos(x) * ddx) @ dy, of_dy
    return of_x, tf.zeros_like(b), tf.transpose(tf.cos(x) * ddx) @ dy, of_dy + ddb


def reference(x: Array, b: Array | None, w: Array) -> Array:
    """y, in NumPy."""
    return np.sin(x) @ w + (0 if b is None else b)


OP = Op(
    name="affine",
    summary="sin(x) w + b, where b may be left out",
    doc=__doc__,
    function=custom_gradient(forward, vjp, vjp_vjp),
    reference=reference,
    inputs=(
        Input("x", DTYPES, ("N", "K")),
        Input("b", DTYPES, ("M",), optional=True),
        Input("w", DTYPES, ("K", "M")),
    ),
    outputs=(Output("y", DTYPES, ("N", "M")),),
    batching="leading_axis",
    shared=("b", "w"),
    source="a test",
    examples=(
        Example("with", {"x": ROW, "b": [1.0, 2.0, 3.0], "w": MATRIX}),
        Example("without", {"x": ROW, "w": MATRIX}),
    ),
)
