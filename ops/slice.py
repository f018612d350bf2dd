r"""A part of the last axis: glue for graphs of ops.

y = x[..., begin : begin + size]; dx is dy in this part, and 0 elsewhere; the second order is 0. Smooth everywhere.

Source: TensorFlow's own op ``tf.slice``, with its gradient.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from pydantic import Field

from ops import Array, Attrs, Example, Input, InvalidInput, Op, Output, Tensor

MOST = 1 << 12


class SliceAttrs(Attrs):
    """The part: its first position on the last axis, and its length."""

    begin: int = Field(default=0, ge=0, le=MOST, description="The first position.")
    size: int = Field(default=1, ge=1, le=MOST, description="The length.")


def forward(x: Tensor, *, begin: int, size: int) -> Tensor:
    """y = x[..., begin : begin + size]."""
    return x[..., begin : begin + size]


def reference(x: Array, *, begin: int, size: int) -> Array:
    """y = x[..., begin : begin + size]."""
    return np.take(x, range(begin, begin + size), axis=-1)


def sizes(dims: Mapping[str, Any]) -> dict[str, int]:
    """Refuse a part that is not within the axis."""
    end = dims["begin"] + dims["size"]
    if end > dims["N"]:
        expected, message = f"a last axis of {end} or more", "the part ends behind the last axis"
        raise InvalidInput("x", message, expected=expected, got=str(dims["N"]))
    return {}


def sample(rng: np.random.Generator, dtype: str, attrs: SliceAttrs) -> dict[str, Array]:
    """Draw an x that is long enough."""
    return {"x": rng.uniform(-3, 3, (2, attrs.begin + attrs.size + 1)).astype(tf.as_dtype(dtype).as_numpy_dtype)}


OP = Op(
    name="slice",
    summary="a part of the last axis",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("x", shape=("...", "N")),),
    outputs=(Output("y", shape=("...", "size")),),
    attrs=SliceAttrs,
    mechanism="register_gradient",
    source="https://www.tensorflow.org/api_docs/python/tf/slice",
    batching="leading_axes",
    sizes=sizes,
    sample=sample,
    examples=(Example("part", {"x": [[1.0, -2.0, 0.5], [0.5, 3.0, 1.0]]}, {"begin": 1, "size": 2}),),
)
