"""The middle number of the five of each row, with a gradient that passes to it alone."""

import numpy as np
import tensorflow as tf

from ops import Array, Attrs, Input, Tensor, custom_gradient
from tests.gradcheck.wrong.making import BOTH, rows


def row_median(x: Tensor) -> Tensor:
    return tf.sort(x, axis=-1)[:, 2]


def vjp(x: Tensor, dy: Tensor) -> Tensor:
    middle = tf.equal(x, tf.expand_dims(row_median(x), -1))
    share = tf.cast(middle, x.dtype) / tf.reduce_sum(tf.cast(middle, x.dtype), axis=-1, keepdims=True)
    return share * tf.expand_dims(dy, -1)


def reference(x: Array) -> Array:
    return np.median(x, axis=-1)


def sample(rng: np.random.Generator, dtype: str, attrs: Attrs) -> dict[str, Array]:
    """Draw five numbers that are apart for each of four rows."""
    return {"x": rng.permuted(np.broadcast_to(np.arange(5) - 2 + 0.25, (4, 5)), axis=-1).astype(dtype)}


OP = rows(
    custom_gradient(row_median, vjp),
    reference,
    inputs=[Input("x", BOTH, ("N", 5))],
    dtypes=BOTH,
    out=("N",),
    sample=sample,
)
