"""w = a b: complex matrices."""

import numpy as np

from pullback.ops import Example, Input, Op, Output

BOTH = ("complex64", "complex128")


def forward(a, b):
    return a @ b


def reference(a, b):
    return np.matmul(a, b)


OP = Op(
    name="cx_matmul",
    summary="a b",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("a", BOTH, ("N", "K")), Input("b", BOTH, ("K", "M"))),
    outputs=(Output("w", BOTH, ("N", "M")),),
    source=__file__,
    examples=(Example("one", {"a": [[[1, 2], [0, -1]]], "b": [[[1, 1]], [[0.5, 0]]]}),),
    holomorphic=True,
)
