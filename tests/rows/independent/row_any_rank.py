"""√(1 + Σx²) over the last axis of a tensor with any axes before it, which are independent."""

import numpy as np
import tensorflow as tf

from ops import Array, Example, Input, Tensor
from tests.gradcheck.wrong.making import BOTH, rows


def row_any_rank(x: Tensor) -> Tensor:
    return tf.sqrt(1 + tf.reduce_sum(x * x, axis=-1))


def reference(x: Array) -> Array:
    return np.sqrt(1 + (x * x).sum(-1))


OP = rows(
    row_any_rank,
    reference,
    inputs=[Input("x", BOTH, ("...", "M"))],
    dtypes=BOTH,
    out=("...",),
    batching="leading_axes",
    examples=(
        Example("rows", {"x": [[1.0, 2.0, -0.5], [0.25, -1.5, 1.0]]}),
        Example("blocks", {"x": [[[1.0, 2.0], [0.5, -1.0]], [[0.0, 3.0], [2.0, -2.0]]]}),
    ),
)
