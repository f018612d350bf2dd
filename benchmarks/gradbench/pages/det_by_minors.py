r"""The determinant of a matrix by expansion by minors: the eval ``det`` of GradBench.

y = det A. Row by row, the minor of the first i rows and of each set of i columns is a sum over the columns of the set,
with alternating signs, of the element in row i and the minor of the rest, so each minor is computed once: n 2ⁿ⁻¹
products in place of the n! of the plain recursion. dy/dA = the cofactors; smooth everywhere.

Source: the eval, after ``det_by_minor`` of cmpad. The gradient is TensorFlow's own.
"""

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np
import tensorflow as tf
from pydantic import Field

from ops import Array, Attrs, Example, Input, InvalidInput, Op, Output, Tensor

MOST = 11


class MinorsAttrs(Attrs):
    """The size of the matrix."""

    ell: int = Field(default=3, ge=1, le=MOST, description="The number of rows and columns.")


def forward(a: Tensor, *, ell: int) -> Tensor:
    """y = det A."""
    minors, place = tf.ones((1,), a.dtype), {(): 0}
    for row in range(ell):
        sets = list(combinations(range(ell), row + 1))
        rests = [[place[columns[:i] + columns[i + 1 :]] for i in range(row + 1)] for columns in sets]
        signs = tf.constant((-1.0) ** (np.arange(row + 1) + row), a.dtype)
        minors = tf.reduce_sum(signs * tf.gather(a[row], sets) * tf.gather(minors, rests), 1)
        place = {columns: i for i, columns in enumerate(sets)}
    return minors[0]


def reference(a: Array, *, ell: int) -> Array:
    """y = det A, by elimination."""
    return np.linalg.det(np.asarray(a, np.float64))


def validate(inputs: Mapping[str, Array], attrs: MinorsAttrs) -> None:
    """Refuse a matrix of another size."""
    if (got := len(inputs["a"])) != attrs.ell:
        raise InvalidInput("a", "the wrong size of a matrix", expected=f"{attrs.ell} rows, as ell says", got=str(got))


def sample(rng: np.random.Generator, dtype: str, attrs: MinorsAttrs) -> dict[str, Array]:
    """Draw a matrix."""
    return {"a": rng.normal(size=(attrs.ell, attrs.ell)).astype(dtype)}


def cost(dims: Mapping[str, Any]) -> int:
    """Return the multiply-adds: n 2ⁿ⁻¹."""
    return dims["L"] << max(dims["L"] - 1, 0)


OP = Op(
    name="det_by_minors",
    summary="the determinant of a matrix by expansion by minors",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("a", shape=("L", "L"), dtypes=("float64", "float32")),),
    outputs=(Output("y", shape=(), dtypes=("float64", "float32")),),
    attrs=MinorsAttrs,
    validate=validate,
    sample=sample,
    cost=cost,
    source="https://github.com/gradbench/gradbench/tree/main/evals/det",
    examples=(Example("three rows", {"a": [[2.0, 1.0, 0.5], [-1.0, 3.0, 0.25], [0.5, 1.0, -2.0]]}),),
)
