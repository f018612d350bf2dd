"""The product of two matrices of each row and a vector of each row, as one sum over all indices."""

import tensorflow as tf

from ops import Array, Input, Tensor
from tests.gradcheck.wrong.making import BOTH, rows


def row_einsum(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    return tf.einsum("nij,njk,nk->ni", a, b, x)


def reference(a: Array, b: Array, x: Array) -> Array:
    return (a @ b @ x[..., None])[..., 0]


OP = rows(
    row_einsum,
    reference,
    inputs=[Input("a", BOTH, ("N", "I", "J")), Input("b", BOTH, ("N", "J", "K")), Input("x", BOTH, ("N", "K"))],
    dtypes=BOTH,
    out=("N", "I"),
)
