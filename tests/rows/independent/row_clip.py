"""The identity, with the cotangent of each row shortened to the length ``limit`` where it is longer."""

from functools import partial

import numpy as np
import tensorflow as tf
from pydantic import Field

from ops import Array, Arrays, Attrs, Claim, Example, Formula, Tensor, custom_gradient
from tests.gradcheck.wrong.making import BOTH, rows


class ClipAttrs(Attrs):
    limit: float = Field(default=1.5, gt=0)


def row_clip(x: Tensor, *, limit: Tensor) -> Tensor:
    return tf.identity(x)


def vjp(x: Tensor, dy: Tensor, *, limit: Tensor) -> Tensor:
    squares = tf.reduce_sum(dy * dy, axis=-1, keepdims=True)
    return tf.where(squares > limit * limit, dy * limit * tf.math.rsqrt(tf.maximum(squares, limit * limit)), dy)


def reference(x: Array, *, limit: float) -> Array:
    return x


def clipped(primals: Arrays, cotangents: Arrays, *, limit: float) -> Arrays:
    length = np.linalg.norm(cotangents[0], axis=-1, keepdims=True)
    return (cotangents[0] * np.minimum(1, limit / length),)


def claim(attrs: ClipAttrs) -> Claim:
    return Claim(first=Formula(partial(clipped, limit=attrs.limit)), linear=False)


X = {"x": [[1.0, 2.0, -0.5], [0.25, -1.5, 1.0]]}
OP = rows(
    custom_gradient(row_clip, vjp),
    reference,
    dtypes=BOTH,
    attrs=ClipAttrs,
    claim=claim,
    examples=(Example("short", X), Example("long", X, {"limit": 40.0})),
)
