"""y_i = x_i², and x_i x_{i+1} besides where x_i > 1; the page declares both nonzeros of a row."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from ops import Array, Example, Input, Op, Output, Tensor


def forward(x: Tensor) -> Tensor:
    """The squares."""
    return x * x + tf.where(x > 1, x * tf.roll(x, -1, 0), 0)


def reference(x: Array) -> Array:
    """The squares."""
    return x * x + np.where(x > 1, x * np.roll(x, -1), 0)


def sparsity(dims: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """Return the rows and columns of the nonzeros."""
    i = np.arange(dims["n"])
    return {"y": {"x": (np.r_[i, i], np.r_[i, (i + 1) % dims["n"]])}}


OP = Op(
    name="declared_band",
    summary="a band that the page declares",
    doc=__doc__,
    function=forward,
    reference=reference,
    sparsity=sparsity,
    inputs=(Input("x", dtypes=("float64", "float32"), shape=("n",), kinks=(1.0,)),),
    outputs=(Output("y", dtypes=("float64", "float32"), shape=("n",)),),
    source="a test",
    examples=(Example("four", {"x": [0.5, -1.0, 2.0, 3.0]}),),
)
