"""The logarithm of |det(A + 4I)| for a matrix A of each row."""

import numpy as np
import tensorflow as tf

from ops import UNCOMPILED, Array, Input, Tensor
from tests.gradcheck.wrong.making import BOTH, rows
from tests.rows.making import SQUARE


def row_logdet(a: Tensor) -> Tensor:
    return tf.linalg.slogdet(a + 4 * tf.eye(tf.shape(a)[-1], dtype=a.dtype))[1]


def reference(a: Array) -> Array:
    return np.linalg.slogdet(a + 4 * np.eye(a.shape[-1]))[1]


A = Input("a", BOTH, SQUARE, domain=(-0.5, 0.5))
OP = rows(row_logdet, reference, inputs=[A], dtypes=BOTH, out=("N",), modes=UNCOMPILED)
