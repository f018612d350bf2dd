"""x², with the mean cotangent of all rows in the gradient of each."""

import tensorflow as tf

from ops import Tensor, custom_gradient
from tests.gradcheck.wrong.making import BOTH, rows


def coupled_gradient(x: Tensor) -> Tensor:
    return x * x


def vjp(x: Tensor, dy: Tensor) -> Tensor:
    return 2 * x * (dy + tf.reduce_mean(dy, axis=0)) / 2


OP = rows(custom_gradient(coupled_gradient, vjp), None, dtypes=BOTH)
