r"""All numbers of a tensor as a matrix, in row-major order: glue for graphs of ops.

y = x in another shape; dx = dy in the shape of x; the second order is 0. Smooth everywhere.

Source: TensorFlow's own op ``tf.reshape``, with its gradient.
"""

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import tensorflow as tf
from pydantic import Field

from ops import Array, Attrs, Example, Input, InvalidInput, Op, Output, Tensor

MOST = 1 << 12


class ReshapeAttrs(Attrs):
    """The shape of the matrix."""

    rows: int = Field(default=1, ge=1, le=MOST, description="The rows.")
    columns: int = Field(default=1, ge=1, le=MOST, description="The columns.")


def forward(x: Tensor, *, rows: int, columns: int) -> Tensor:
    """y = x, as a matrix."""
    return tf.reshape(x, [rows, columns])


def reference(x: Array, *, rows: int, columns: int) -> Array:
    """y = x, as a matrix."""
    return np.reshape(x, (rows, columns))


def sizes(dims: Mapping[str, Any]) -> dict[str, int]:
    """Refuse a tensor with another number of elements."""
    wanted, given = dims["rows"] * dims["columns"], prod(dims["..."])
    if wanted != given:
        message = f"expected {wanted} elements, for {dims['rows']} rows of {dims['columns']}"
        raise InvalidInput("x", message, expected=str(wanted), got=str(given))
    return {}


def sample(rng: np.random.Generator, dtype: str, attrs: ReshapeAttrs) -> dict[str, Array]:
    """Draw an x with the right number of elements."""
    return {"x": rng.uniform(-3, 3, attrs.rows * attrs.columns).astype(tf.as_dtype(dtype).as_numpy_dtype)}


OP = Op(
    name="reshape",
    summary="all numbers of a tensor as a matrix",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("x"),),
    outputs=(Output("y", shape=("rows", "columns")),),
    attrs=ReshapeAttrs,
    mechanism="register_gradient",
    source="https://www.tensorflow.org/api_docs/python/tf/reshape",
    sizes=sizes,
    sample=sample,
    examples=(
        Example("number", {"x": [1.5]}),
        Example("matrix", {"x": [1.0, -2.0, 0.5, 0.5, 3.0, 1.0]}, {"rows": 2, "columns": 3}),
    ),
)
