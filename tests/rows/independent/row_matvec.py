"""A matrix of each row times a vector of each row."""

import tensorflow as tf

from ops import Array, Input, Tensor
from tests.gradcheck.wrong.making import BOTH, rows


def row_matvec(a: Tensor, x: Tensor) -> Tensor:
    return tf.linalg.matvec(a, x)


def reference(a: Array, x: Array) -> Array:
    return (a @ x[..., None])[..., 0]


OP = rows(row_matvec, reference, inputs=[Input("a", BOTH, ("N", "M", "K")), Input("x", BOTH, ("N", "K"))], dtypes=BOTH)
