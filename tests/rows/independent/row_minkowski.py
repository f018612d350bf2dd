"""(Σ |x|ᵖ)^(1/p) of each row, or its p-th power: a number and a choice as attributes."""

from typing import Literal

import tensorflow as tf
from pydantic import Field

from ops import Array, Attrs, Example, Tensor
from tests.gradcheck.wrong.making import BOTH, rows


class MinkowskiAttrs(Attrs):
    p: float = Field(default=3.0, ge=1, le=8)
    root: Literal["taken", "left"] = "taken"


def row_minkowski(x: Tensor, *, p: Tensor, root: str) -> Tensor:
    total = tf.reduce_sum(tf.pow(x, p), axis=-1)
    return tf.pow(total, 1 / p) if root == "taken" else total


def reference(x: Array, *, p: float, root: str) -> Array:
    total = (x**p).sum(-1)
    return total ** (1 / p) if root == "taken" else total


X = {"x": [[1.0, 2.0, 0.5], [0.25, 1.5, 1.0]]}
OP = rows(
    row_minkowski,
    reference,
    dtypes=BOTH,
    out=("N",),
    slot={"domain": (0.25, 2.0)},
    attrs=MinkowskiAttrs,
    examples=(
        Example("cubes", X),
        Example("steep", X, {"p": 4.5}),
        Example("without root", X, {"p": 2.25, "root": "left"}),
    ),
)
