"""The exponential of a matrix of each row, whose number of squarings depends on the norm of the matrix."""

import numpy as np
import tensorflow as tf

from ops import UNCOMPILED, Array, Input, Tensor
from tests.gradcheck.wrong.making import BOTH, rows
from tests.rows.making import SQUARE


def row_expm(a: Tensor) -> Tensor:
    return tf.linalg.expm(a)


def reference(a: Array) -> Array:
    term = total = np.broadcast_to(np.eye(a.shape[-1]), a.shape)
    for k in range(1, 40):
        term = term @ a / k
        total = total + term
    return total


A = Input("a", BOTH, SQUARE, domain=(-1.0, 1.0))
OP = rows(row_expm, reference, inputs=[A], dtypes=BOTH, out=SQUARE, modes=UNCOMPILED)
