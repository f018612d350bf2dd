"""The graph log(1 + exp |a x|) of ``benchmarks.graphs`` as an author would write it."""

import numpy as np
import tensorflow as tf

from ops import Array, Example, Input, Op, Output, Tensor, log1pexp, safe_norm


def forward(a: Tensor, x: Tensor) -> Tensor:
    """y = log(1 + exp |a x|)."""
    return log1pexp.OP.function(safe_norm.OP.function(tf.linalg.matvec(a, x)))


def reference(a: Array, x: Array) -> Array:
    """Return the same in NumPy."""
    return np.logaddexp(0, np.linalg.norm(np.asarray(a, np.float64) @ x))


OP = Op(
    name="loss_page",
    summary="log(1 + exp |a x|)",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("a", shape=("M", "N")), Input("x", shape=("N",))),
    outputs=(Output("y", shape=()),),
    mechanism="composition",
    source="none: it is made for a benchmark",
    examples=(Example("square", {"a": [[1.0, 2.0], [0.5, -1.0]], "x": [0.25, 1.0]}),),
)
