"""The logistic map of each row, five times: x r (1 - x), with the rates of the row."""

from ops import Array, Input, Tensor
from tests.gradcheck.wrong.making import BOTH, rows


def row_recurrence(x: Tensor, r: Tensor) -> Tensor:
    for step in range(5):
        x = x * r[:, step] * (1 - x)
    return x


def reference(x: Array, r: Array) -> Array:
    for rate in r.T:
        x = x * rate * (1 - x)
    return x


OP = rows(
    row_recurrence,
    reference,
    inputs=[Input("x", BOTH, ("N",), domain=(0.1, 0.9)), Input("r", BOTH, ("N", 5), domain=(1.0, 3.5))],
    dtypes=BOTH,
    out=("N",),
)
