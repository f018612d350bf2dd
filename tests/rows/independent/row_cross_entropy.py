"""The cross entropy of softmax(x) against a label of each row, smoothed: integers beside floats, and an attribute."""

import numpy as np
import tensorflow as tf
from pydantic import Field

from ops import Array, Attrs, Example, Input, Tensor
from tests.gradcheck.wrong.making import BOTH, rows


class SmoothingAttrs(Attrs):
    smoothing: float = Field(default=0.125, ge=0, le=1)


def row_cross_entropy(x: Tensor, label: Tensor, *, smoothing: Tensor) -> Tensor:
    own = tf.one_hot(label, tf.shape(x)[-1], dtype=x.dtype)
    target = (1 - smoothing) * own + smoothing / tf.cast(tf.shape(x)[-1], x.dtype)
    return -tf.reduce_sum(target * tf.nn.log_softmax(x), axis=-1)


def reference(x: Array, label: Array, *, smoothing: float) -> Array:
    log_p = x - np.logaddexp.reduce(x, axis=-1, keepdims=True)
    own = np.take_along_axis(log_p, label[:, None].astype(int), axis=-1)[:, 0]
    return -(1 - smoothing) * own - smoothing * log_p.mean(-1)


ROWS = {"x": [[1.0, -0.5, 2.0], [0.25, 0.0, -3.0]], "label": [2, 0]}
OP = rows(
    row_cross_entropy,
    reference,
    inputs=[Input("x", BOTH, ("N", 3)), Input("label", ("int32",), ("N",), differentiable=False, domain=(0.0, 2.5))],
    dtypes=BOTH,
    out=("N",),
    attrs=SmoothingAttrs,
    examples=(Example("smooth", ROWS), Example("sharp", ROWS, {"smoothing": 0.0})),
)
