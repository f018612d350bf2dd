"""The integral of exp(-a t²) cos(t) from 0 to b for the a and b of each row, by Gauss and Legendre with 12 nodes."""

import numpy as np
import tensorflow as tf

from ops import Array, Input, Tensor
from tests.gradcheck.wrong.making import BOTH, rows

NODES, WEIGHTS = np.polynomial.legendre.leggauss(12)


def row_quadrature(a: Tensor, b: Tensor) -> Tensor:
    t = tf.expand_dims(b / 2, -1) * tf.constant(1 + NODES, b.dtype)
    values = tf.exp(-tf.expand_dims(a, -1) * t * t) * tf.cos(t)
    return b / 2 * tf.linalg.matvec(values, tf.constant(WEIGHTS, b.dtype))


def reference(a: Array, b: Array) -> Array:
    t = b[:, None] / 2 * (1 + NODES)
    return b / 2 * (np.exp(-a[:, None] * t * t) * np.cos(t) * WEIGHTS).sum(-1)


OP = rows(
    row_quadrature,
    reference,
    inputs=[Input("a", BOTH, ("N",), domain=(0.25, 1.0)), Input("b", BOTH, ("N",))],
    dtypes=BOTH,
    out=("N",),
)
