"""y = √(1 + Σx²) of each row, with both orders of its gradient written by hand."""

import numpy as np
import tensorflow as tf

from ops import Array, Tensor, custom_gradient
from tests.gradcheck.wrong.making import BOTH, rows


def row_norm(x: Tensor) -> Tensor:
    return tf.sqrt(1 + tf.reduce_sum(x * x, axis=-1))


def vjp(x: Tensor, dy: Tensor) -> Tensor:
    return x * tf.expand_dims(dy / row_norm(x), -1)


def vjp_vjp(x: Tensor, dy: Tensor, ddx: Tensor) -> tuple[Tensor, Tensor]:
    y = row_norm(x)
    along = tf.reduce_sum(x * ddx, axis=-1) / y
    return tf.expand_dims(dy / y, -1) * (ddx - x * tf.expand_dims(along / y, -1)), along


def reference(x: Array) -> Array:
    return np.sqrt(1 + (x * x).sum(-1))


OP = rows(custom_gradient(row_norm, vjp, vjp_vjp), reference, dtypes=BOTH, out=("N",))
