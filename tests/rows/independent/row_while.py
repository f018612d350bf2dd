"""A loop of TensorFlow with a fixed number of turns: x becomes sin(x) + x/2, six times."""

import numpy as np
import tensorflow as tf

from ops import Array, Tensor
from tests.gradcheck.wrong.making import BOTH, rows

TURNS = 6


def row_while(x: Tensor) -> Tensor:
    def body(turn: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return turn + 1, tf.sin(y) + y / 2

    def goes_on(turn: Tensor, y: Tensor) -> Tensor:
        return turn < TURNS

    return tf.while_loop(goes_on, body, (tf.constant(0), x), maximum_iterations=TURNS)[1]


def reference(x: Array) -> Array:
    for _ in range(TURNS):
        x = np.sin(x) + x / 2
    return x


OP = rows(row_while, reference, dtypes=BOTH)
