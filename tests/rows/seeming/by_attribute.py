"""x less its mean over the row, or over all rows, as an attribute says."""

from typing import Literal

import tensorflow as tf

from ops import Attrs, Example, Tensor
from tests.gradcheck.wrong.making import BOTH, rows


class CentreAttrs(Attrs):
    over: Literal["row", "all"] = "row"


def by_attribute(x: Tensor, *, over: str) -> Tensor:
    return x - (tf.reduce_mean(x, axis=-1, keepdims=True) if over == "row" else tf.reduce_mean(x))


X = {"x": [[1.0, 2.0, -0.5], [0.25, -1.5, 1.0]]}
OP = rows(
    by_attribute,
    None,
    dtypes=BOTH,
    attrs=CentreAttrs,
    examples=(Example("of the row", X), Example("of all", X, {"over": "all"})),
)
