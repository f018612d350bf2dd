"""Σ x³ of each row with its rounding errors carried along, in float64 alone."""

import tensorflow as tf

from ops import Array, Input, Tensor, custom_gradient
from tests.gradcheck.wrong.making import WIDE, rows


def row_compensated(x: Tensor) -> Tensor:
    total = carried = tf.zeros_like(x[:, 0])
    for k in range(5):
        term = x[:, k] * x[:, k] * x[:, k] - carried
        following = total + term
        carried = (following - total) - term
        total = following
    return total


def vjp(x: Tensor, dy: Tensor) -> Tensor:
    return 3 * x * x * tf.expand_dims(dy, -1)


def reference(x: Array) -> Array:
    return (x**3).sum(-1)


OP = rows(custom_gradient(row_compensated, vjp), reference, inputs=[Input("x", WIDE, ("N", 5))], out=("N",))
