"""The graph of 100 nodes of ``benchmarks.graphs`` as an author would write it.

y = Σx₃₃, where x₀ = x and x₍ᵢ₊₁₎ = log(1 + exp xᵢ) / 2 - x.
"""

import numpy as np
import tensorflow as tf

from ops import Array, Example, Input, Op, Output, Tensor, log1pexp

STEPS = 33


def forward(x: Tensor) -> Tensor:
    """Return the sum of the last step."""
    y = x
    for _ in range(STEPS):
        y = log1pexp.OP.function(y) * 0.5 - x
    return tf.reduce_sum(y, axis=-1)


def reference(x: Array) -> Array:
    """Return the same in NumPy."""
    y = np.asarray(x, np.float64)
    for _ in range(STEPS):
        y = np.logaddexp(0, y) / 2 - x
    return y.sum(axis=-1)


OP = Op(
    name="chain_page",
    summary="33 steps of log1pexp, a product and a difference, and their sum",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("x", shape=("...", "N")),),
    outputs=(Output("y", shape=("...",)),),
    mechanism="composition",
    source="none: it is made for a benchmark",
    examples=(Example("row", {"x": [0.5, -1.0]}),),
)
