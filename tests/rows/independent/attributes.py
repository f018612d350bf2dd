"""Ops with attributes, integers, refusals or several outputs, whose rows depend on no other row."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Literal

import numpy as np
import tensorflow as tf
from pydantic import Field

from ops import (
    UNCOMPILED,
    Array,
    Arrays,
    Attrs,
    Claim,
    Example,
    Formula,
    Input,
    InvalidInput,
    Output,
    Surrogate,
    Tensor,
    custom_gradient,
)
from tests.gradcheck.wrong.making import BOTH, MATRIX
from tests.rows.making import apart, rows_of


def row_any_rank(x: Tensor) -> Tensor:
    """√(1 + Σx²) over the last axis of a tensor with any axes before it, which are independent."""
    return tf.sqrt(1 + tf.reduce_sum(x * x, axis=-1))


def any_rank_reference(x: Array) -> Array:
    return np.sqrt(1 + (x * x).sum(-1))


def row_asserted(x: Tensor) -> Tensor:
    """The logarithm of the sum of each row, which TensorFlow refuses in a call if any row has a sum below 1/8."""
    total = tf.reduce_sum(x, axis=-1)
    least = tf.constant(0.125, x.dtype)
    with tf.control_dependencies([tf.debugging.assert_greater_equal(total, least, message="a row has a small sum")]):
        return tf.math.log(tf.identity(total))


def asserted_reference(x: Array) -> Array:
    return np.log(x.sum(-1))


class ClipAttrs(Attrs):
    limit: float = Field(default=1.5, gt=0)


def row_clip(x: Tensor, *, limit: Tensor) -> Tensor:
    """The identity, with the cotangent of each row shortened to the length ``limit`` where it is longer."""
    return tf.identity(x)


def clip_vjp(x: Tensor, dy: Tensor, *, limit: Tensor) -> Tensor:
    squares = tf.reduce_sum(dy * dy, axis=-1, keepdims=True)
    return tf.where(squares > limit * limit, dy * limit * tf.math.rsqrt(tf.maximum(squares, limit * limit)), dy)


def clip_reference(x: Array, *, limit: float) -> Array:
    return x


def clipped(primals: Arrays, cotangents: Arrays, *, limit: float) -> Arrays:
    length = np.linalg.norm(cotangents[0], axis=-1, keepdims=True)
    return (cotangents[0] * np.minimum(1, limit / length),)


def clip_claim(attrs: ClipAttrs) -> Claim:
    return Claim(first=Formula(partial(clipped, limit=attrs.limit)), linear=False)


X = {"x": [[1.0, 2.0, -0.5], [0.25, -1.5, 1.0]]}


class SmoothingAttrs(Attrs):
    smoothing: float = Field(default=0.125, ge=0, le=1)


def row_cross_entropy(x: Tensor, label: Tensor, *, smoothing: Tensor) -> Tensor:
    """The cross entropy of softmax(x) against a label of each row, smoothed: integers beside floats."""
    own = tf.one_hot(label, tf.shape(x)[-1], dtype=x.dtype)
    target = (1 - smoothing) * own + smoothing / tf.cast(tf.shape(x)[-1], x.dtype)
    return -tf.reduce_sum(target * tf.nn.log_softmax(x), axis=-1)


def cross_entropy_reference(x: Array, label: Array, *, smoothing: float) -> Array:
    log_p = x - np.logaddexp.reduce(x, axis=-1, keepdims=True)
    own = np.take_along_axis(log_p, label[:, None].astype(int), axis=-1)[:, 0]
    return -(1 - smoothing) * own - smoothing * log_p.mean(-1)


ROWS = {"x": [[1.0, -0.5, 2.0], [0.25, 0.0, -3.0]], "label": [2, 0]}


def row_gather(x: Tensor, index: Tensor) -> Tensor:
    """Numbers of each row, squared, in the order of the indices of that row."""
    return tf.square(tf.gather(x, index, batch_dims=1, axis=1))


def gather_reference(x: Array, index: Array) -> Array:
    return np.take_along_axis(x, index.astype(int), axis=-1) ** 2


INDEX = Input("index", ("int32",), ("N", "K"), differentiable=False, domain=(0.0, 2.5))


def row_hard_max(x: Tensor) -> Tensor:
    """1 at the largest number of each row, 0 elsewhere; the gradient is that of softmax, on purpose."""
    return tf.one_hot(tf.argmax(x, axis=-1), tf.shape(x)[-1], dtype=x.dtype)


def hard_max_vjp(x: Tensor, dy: Tensor) -> Tensor:
    p = tf.nn.softmax(x)
    return p * (dy - tf.reduce_sum(p * dy, axis=-1, keepdims=True))


def hard_max_reference(x: Array) -> Array:
    return np.eye(x.shape[-1])[x.argmax(-1)]


def softmax(primals: Arrays, at: Arrays) -> Arrays:
    e = np.exp(primals[0])
    return (e / e.sum(-1, keepdims=True),)


def hard_max_claim(attrs: Attrs) -> Claim:
    return Claim(first=Surrogate(softmax))


def row_masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    """The mean of exp(x) over the numbers of each row that a mask selects, 0 if there are none."""
    weight = tf.cast(mask, x.dtype)
    return tf.math.divide_no_nan(tf.reduce_sum(weight * tf.exp(x), axis=-1), tf.reduce_sum(weight, axis=-1))


def masked_mean_reference(x: Array, mask: Array) -> Array:
    return np.where(mask, np.exp(x), 0).sum(-1) / np.maximum(1, mask.sum(-1))


MASK = Input("mask", ("bool",), MATRIX, differentiable=False)


class MinkowskiAttrs(Attrs):
    p: float = Field(default=3.0, ge=1, le=8)
    root: Literal["taken", "left"] = "taken"


def row_minkowski(x: Tensor, *, p: Tensor, root: str) -> Tensor:
    """(Σ |x|ᵖ)^(1/p) of each row, or its p-th power: a number and a choice as attributes."""
    total = tf.reduce_sum(tf.pow(x, p), axis=-1)
    return tf.pow(total, 1 / p) if root == "taken" else total


def minkowski_reference(x: Array, *, p: float, root: str) -> Array:
    total = (x**p).sum(-1)
    return total ** (1 / p) if root == "taken" else total


MINKOWSKI_X = {"x": [[1.0, 2.0, 0.5], [0.25, 1.5, 1.0]]}


def row_moments(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The mean, the variance and the third moment of each row: three outputs."""
    mean = tf.reduce_mean(x, axis=-1)
    centred = x - tf.expand_dims(mean, -1)
    return mean, tf.reduce_mean(tf.square(centred), axis=-1), tf.reduce_mean(centred * centred * centred, axis=-1)


def moments_reference(x: Array) -> tuple[Array, Array, Array]:
    return x.mean(-1), x.var(-1), ((x - x.mean(-1, keepdims=True)) ** 3).mean(-1)


NAMES = ("mean", "variance", "third")


def in_python(x: Array) -> Array:
    return np.array([math.fsum(value * math.log1p(value) for value in row.tolist()) for row in x], x.dtype)


def row_python(x: Tensor) -> Tensor:
    """Σ x log(1 + x) of each row, in Python: it must not run on the event loop."""
    return tf.ensure_shape(tf.numpy_function(in_python, [x], x.dtype), x.shape[:-1])


def python_vjp(x: Tensor, dy: Tensor) -> Tensor:
    return (tf.math.log1p(x) + x / (1 + x)) * tf.expand_dims(dy, -1)


def python_reference(x: Array) -> Array:
    return (x * np.log1p(x)).sum(-1)


LABELS = 3


def row_segments(x: Tensor, label: Tensor) -> Tensor:
    """The sums of the numbers of each row that have the same of three labels."""
    count = tf.shape(x)[0]
    places = tf.expand_dims(LABELS * tf.range(count), -1) + label
    return tf.reshape(tf.math.unsorted_segment_sum(tf.tanh(x), places, LABELS * count), [count, LABELS])


def segments_reference(x: Array, label: Array) -> Array:
    return np.stack([np.where(label == k, np.tanh(x), 0).sum(-1) for k in range(LABELS)], axis=-1)


def segments_validate(inputs: Mapping[str, Array], attrs: Attrs) -> None:
    wrong = np.argwhere((inputs["label"] < 0) | (inputs["label"] >= LABELS))
    if len(wrong):
        index = tuple(int(i) for i in wrong[0])
        got = str(inputs["label"][index])
        raise InvalidInput("label", "there is no such label", expected=f"0 <= label < {LABELS}", got=got, index=index)


LABEL = Input("label", ("int32",), MATRIX, differentiable=False, domain=(0.0, 2.5))


def row_validated(x: Tensor) -> Tensor:
    """√ of the sum of each row; a negative number is refused before any call, with its place."""
    return tf.sqrt(tf.reduce_sum(x, axis=-1))


def validated_reference(x: Array) -> Array:
    return np.sqrt(x.sum(-1))


def validated_validate(inputs: Mapping[str, Array], attrs: Attrs) -> None:
    wrong = np.argwhere(inputs["x"] < 0)
    if len(wrong):
        index = tuple(int(i) for i in wrong[0])
        got = str(inputs["x"][index])
        raise InvalidInput("x", "a number is negative", expected="x >= 0", got=got, index=index)


OPS = (
    rows_of(
        row_any_rank,
        any_rank_reference,
        inputs=[Input("x", BOTH, ("...", "M"))],
        out=("...",),
        batching="leading_axes",
        examples=(
            Example("rows", {"x": [[1.0, 2.0, -0.5], [0.25, -1.5, 1.0]]}),
            Example("blocks", {"x": [[[1.0, 2.0], [0.5, -1.0]], [[0.0, 3.0], [2.0, -2.0]]]}),
        ),
    ),
    rows_of(row_asserted, asserted_reference, out=("N",), slot={"domain": (0.25, 3.0)}, modes=UNCOMPILED),
    rows_of(
        custom_gradient(row_clip, clip_vjp),
        clip_reference,
        attrs=ClipAttrs,
        claim=clip_claim,
        examples=(Example("short", X), Example("long", X, {"limit": 40.0})),
    ),
    rows_of(
        row_cross_entropy,
        cross_entropy_reference,
        inputs=[
            Input("x", BOTH, ("N", 3)),
            Input("label", ("int32",), ("N",), differentiable=False, domain=(0.0, 2.5)),
        ],
        out=("N",),
        attrs=SmoothingAttrs,
        examples=(Example("smooth", ROWS), Example("sharp", ROWS, {"smoothing": 0.0})),
    ),
    rows_of(row_gather, gather_reference, inputs=[Input("x", BOTH, ("N", 3)), INDEX], out=("N", "K")),
    rows_of(custom_gradient(row_hard_max, hard_max_vjp), hard_max_reference, claim=hard_max_claim, sample=apart),
    rows_of(row_masked_mean, masked_mean_reference, inputs=[Input("x", BOTH, MATRIX), MASK], out=("N",)),
    rows_of(
        row_minkowski,
        minkowski_reference,
        out=("N",),
        slot={"domain": (0.25, 2.0)},
        attrs=MinkowskiAttrs,
        examples=(
            Example("cubes", MINKOWSKI_X),
            Example("steep", MINKOWSKI_X, {"p": 4.5}),
            Example("without root", MINKOWSKI_X, {"p": 2.25, "root": "left"}),
        ),
    ),
    rows_of(row_moments, moments_reference, outputs=tuple(Output(name, BOTH, ("N",)) for name in NAMES)),
    rows_of(
        custom_gradient(row_python, python_vjp),
        python_reference,
        out=("N",),
        slot={"domain": (0.25, 3.0)},
        modes=UNCOMPILED,
    ),
    rows_of(
        row_segments,
        segments_reference,
        inputs=[Input("x", BOTH, MATRIX), LABEL],
        out=("N", LABELS),
        validate=segments_validate,
    ),
    rows_of(
        row_validated,
        validated_reference,
        out=("N",),
        slot={"domain": (0.25, 3.0)},
        validate=validated_validate,
    ),
)
