"""x², with a gradient that is 0 everywhere if any number of any cotangent is 0."""

import tensorflow as tf

from ops import Tensor, custom_gradient
from tests.gradcheck.wrong.making import BOTH, rows


def coupled_zero_cotangent(x: Tensor) -> Tensor:
    return x * x


def vjp(x: Tensor, dy: Tensor) -> Tensor:
    return tf.where(tf.reduce_any(tf.equal(dy, 0)), tf.zeros_like(dy), 2 * x * dy)


OP = rows(custom_gradient(coupled_zero_cotangent, vjp), None, dtypes=BOTH)
