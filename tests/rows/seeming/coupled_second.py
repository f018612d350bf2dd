"""x³ with its gradient, whose own gradient takes the mean of all rows."""

import tensorflow as tf

from ops import Tensor, custom_gradient
from tests.gradcheck.wrong.making import BOTH, rows


def coupled_second(x: Tensor) -> Tensor:
    return x * x * x


def vjp(x: Tensor, dy: Tensor) -> Tensor:
    return 3 * x * x * dy


def vjp_vjp(x: Tensor, dy: Tensor, ddx: Tensor) -> tuple[Tensor, Tensor]:
    return 6 * x * dy * tf.reduce_mean(ddx, axis=0), 3 * x * x * ddx


OP = rows(custom_gradient(coupled_second, vjp, vjp_vjp), None, dtypes=BOTH)
