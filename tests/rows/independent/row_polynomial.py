"""A polynomial with coefficients of each row, c₀ + c₁x + c₂x² + c₃x³, at a number of each row."""

import numpy as np

from ops import Array, Input, Tensor
from tests.gradcheck.wrong.making import BOTH, rows


def row_polynomial(c: Tensor, x: Tensor) -> Tensor:
    y = c[:, 3]
    for k in (2, 1, 0):
        y = y * x + c[:, k]
    return y


def reference(c: Array, x: Array) -> Array:
    return (c * x[:, None] ** np.arange(4)).sum(-1)


OP = rows(
    row_polynomial, reference, inputs=[Input("c", BOTH, ("N", 4)), Input("x", BOTH, ("N",))], dtypes=BOTH, out=("N",)
)
