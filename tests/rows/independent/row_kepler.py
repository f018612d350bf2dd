"""The solution E of E - e sin E = M by eight steps of Newton's, with the gradient of the implicit function."""

import numpy as np
import tensorflow as tf

from ops import Array, Input, Tensor, custom_gradient
from tests.gradcheck.wrong.making import BOTH, rows


def row_kepler(e: Tensor, m: Tensor) -> Tensor:
    y = m
    for _ in range(8):
        y = y - (y - e * tf.sin(y) - m) / (1 - e * tf.cos(y))
    return y


def vjp(e: Tensor, m: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    y = OP.function(e, m)
    dm = dy / (1 - e * tf.cos(y))
    return tf.sin(y) * dm, dm


def reference(e: Array, m: Array) -> Array:
    y = m
    for _ in range(200):
        y = m + e * np.sin(y)
    return y


OP = rows(
    custom_gradient(row_kepler, vjp),
    reference,
    inputs=[Input("e", BOTH, ("N",), domain=(0.0, 0.5)), Input("m", BOTH, ("N",))],
    dtypes=BOTH,
    out=("N",),
)
