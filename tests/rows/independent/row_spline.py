"""The cubic spline of Catmull and Rom through the knots of each row, at one place of each row."""

import numpy as np
import tensorflow as tf

from ops import Array, Input, Tensor
from tests.gradcheck.wrong.making import BOTH, rows


def row_spline(knots: Tensor, t: Tensor) -> Tensor:
    cell = tf.floor(t)
    s, first = t - cell, tf.clip_by_value(tf.cast(cell, tf.int32), 0, 2)
    p = [tf.gather(knots, first + k, batch_dims=1, axis=1) for k in range(4)]
    slope = p[2] - p[0]
    curve = 2 * p[0] - 5 * p[1] + 4 * p[2] - p[3]
    return p[1] + s / 2 * (slope + s * (curve + s * (3 * (p[1] - p[2]) + p[3] - p[0])))


def reference(knots: Array, t: Array) -> Array:
    first = np.floor(t).astype(int)
    p = [knots[np.arange(len(t)), first + k] for k in range(4)]
    s = t - first
    even = (2 * p[0] - 5 * p[1] + 4 * p[2] - p[3]) * s**2
    return p[1] + ((p[2] - p[0]) * s + even + (3 * p[1] - 3 * p[2] + p[3] - p[0]) * s**3) / 2


T = Input("t", BOTH, ("N",), domain=(0.0, 2.9375), kinks=(0.0, 1.0, 2.0))
OP = rows(
    row_spline,
    reference,
    inputs=[Input("knots", BOTH, ("N", 6)), T],
    dtypes=BOTH,
    out=("N",),
)
