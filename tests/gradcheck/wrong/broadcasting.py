"""Broadcasts whose gradients are counted twice, not summed, averaged, or summed along the wrong axis."""

from typing import Any

import numpy as np
import tensorflow as tf

from ops import Example, Input, Output, custom_gradient
from tests.gradcheck.planting import Planted
from tests.gradcheck.wrong.making import BOTH, MATRIX, WIDE, made, rows, spread

FIRST = ("derivative",)
VECTOR = ("N",)


def scaled_mean(x, b, dy):
    """The gradient of b is a mean over the rows in place of their sum."""
    return b * dy, tf.reduce_mean(x * dy, axis=0)


def scaled_first(x, b, dy):
    """The gradient of b has the last row in place of the sum over all."""
    return b * dy, (x * dy)[-1]


def scaled_vjp(x, b, dy):
    return b * dy, tf.reduce_sum(x * dy, axis=0)


def scaled_second(x, b, dy, ddx, ddb):
    """At second order the slot of b is a mean over the rows."""
    return ddb * dy, tf.reduce_mean(ddx * dy, axis=0), ddx * b + x * ddb


def scaled_reference(x, b):
    return x * b


def biased(x, b):
    return tf.tanh(x) + b


def biased_vjp(x, b, dy):
    """The sum over the rows is broadcast and summed again."""
    total = tf.reduce_sum(dy, axis=0, keepdims=True)
    slope = 1 - tf.square(tf.tanh(x))
    return slope * dy, tf.reduce_sum(tf.broadcast_to(total, tf.shape(dy)), axis=0)


def biased_reference(x, b):
    return np.tanh(x) + b


def average(x):
    return tf.reduce_mean(tf.sin(x), axis=-1)


def average_vjp(x, dy):
    """The gradient lacks the division by the number of entries."""
    return tf.cos(x) * tf.expand_dims(dy, -1)


def normalised(x):
    return x / tf.reduce_sum(x, axis=-1, keepdims=True)


def normalised_vjp(x, dy):
    """Without keepdims, the correction of a square matrix is broadcast along the wrong axis."""
    total = tf.reduce_sum(x, axis=-1, keepdims=True)
    return (dy - tf.reduce_sum(dy * normalised(x), axis=-1)) / total


def gained_vjp(x, gain, dy):
    """Of a batch with several axes, only as many rows as its first axis has are summed."""
    each = tf.reshape(x * dy, tf.stack([-1, tf.shape(x)[-1]]))
    return gain * dy, tf.reduce_sum(each[: tf.shape(x)[0]], axis=0)


def outer_vjp(x, w, dy):
    """Both sums run along the other axis, which has the same length."""
    return tf.linalg.matvec(dy, w, transpose_a=True), tf.linalg.matvec(dy, x)


def standard(x):
    """Rows of mean 0 and variance 1, nearly."""
    d = x - tf.reduce_mean(x, axis=-1, keepdims=True)
    return d / tf.sqrt(0.5 + tf.reduce_mean(d * d, axis=-1, keepdims=True))


def standard_vjp(x, dy):
    """The deviation is taken for a constant; the mean is not."""
    d = x - tf.reduce_mean(x, axis=-1, keepdims=True)
    deviation = tf.sqrt(0.5 + tf.reduce_mean(d * d, axis=-1, keepdims=True))
    return (dy - tf.reduce_mean(dy, axis=-1, keepdims=True)) / deviation


def standard_reference(x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(0.5 + x.var(-1, keepdims=True))


def weighted_vjp(x, w, dy):
    """The gradient of w forgets that w is also below."""
    dy = tf.expand_dims(dy / tf.reduce_sum(w, axis=-1), -1)
    return w * dy, x * dy


def columns(x, w):
    return tf.sin(x + w)


def columns_vjp(x, w, dy):
    """The column w gets the first entry of each row in place of the sum of the row."""
    slope = dy * tf.cos(x + w)
    return slope, slope[:, :1]


def distances(x, w):
    """All squared distances of rows: (N, M) and (K, M) to (N, K)."""
    return tf.reduce_sum(tf.square(x[:, None] - w[None]), axis=-1)


def distances_vjp(x, w, dy):
    """The gradient of w has the sign of that of x."""
    each = 2 * dy[..., None] * (x[:, None] - w[None])
    return tf.reduce_sum(each, axis=1), tf.reduce_sum(each, axis=0)


def pair(shape, other, **slot):
    return Input("x", WIDE, shape, **slot), Input("w", WIDE, other, **slot)


POSITIVE: dict[str, Any] = {"domain": (0.5, 3.0), "poles": (0.0,)}
MATRIX_OUT = (Output("y", WIDE, MATRIX),)
BIASED = (Input("x", BOTH, MATRIX), Input("b", BOTH, ("M",)))
SQUARE = (Input("x", WIDE, ("N", "N"), **POSITIVE),)
BATCH = (Input("x", WIDE, ("...", "N")), Input("gain", WIDE, VECTOR))
DEEP = spread((Input("x", WIDE, (2, 3, 2)), Input("gain", WIDE, (2,))))
"""A batch with two axes."""

SCALED = {
    "a mean in place of a sum over rows": (scaled_mean, None, FIRST),
    "one row in place of a sum over rows": (scaled_first, None, FIRST),
    "a mean in place of a sum at second order": (scaled_vjp, scaled_second, ("second",)),
}
OPS: dict[str, Planted] = {
    **{
        words: Planted(
            made(
                custom_gradient(lambda x, b: x * b, first, second),
                scaled_reference,
                pair(MATRIX, ("M",)),
                name=(second or first).__name__,
                outputs=MATRIX_OUT,
            ),
            checks,
        )
        for words, (first, second, checks) in SCALED.items()
    },
    "a broadcast counted twice": Planted(
        made(custom_gradient(biased, biased_vjp), biased_reference, BIASED, outputs=(Output("y", BOTH, MATRIX),)), FIRST
    ),
    "a mean without its division": Planted(
        rows(custom_gradient(average, average_vjp), lambda x: np.sin(x).mean(-1), out=VECTOR, dtypes=BOTH), FIRST
    ),
    "a square matrix without keepdims": Planted(
        made(
            custom_gradient(normalised, normalised_vjp),
            lambda x: x / x.sum(-1, keepdims=True),
            SQUARE,
            outputs=(Output("y", WIDE, ("N", "N")),),
        ),
        FIRST,
    ),
    "a batch with several axes": Planted(
        made(
            custom_gradient(lambda x, gain: x * gain, gained_vjp),
            scaled_reference,
            BATCH,
            outputs=(Output("y", WIDE, ("...", "N")),),
            examples=(Example("deep", DEEP),),
            name="gained",
        ),
        FIRST,
    ),
    "sums along the other axis of a square": Planted(
        made(
            custom_gradient(lambda x, w: tf.expand_dims(x, -1) * tf.expand_dims(w, -2), outer_vjp),
            np.multiply.outer,
            pair(VECTOR, VECTOR),
            outputs=(Output("y", WIDE, ("N", "N")),),
            name="outer",
        ),
        FIRST,
    ),
    "a deviation taken for a constant": Planted(
        rows(custom_gradient(standard, standard_vjp), standard_reference), FIRST
    ),
    "weights that are also below": Planted(
        rows(
            custom_gradient(lambda x, w: tf.reduce_sum(w * x, axis=-1) / tf.reduce_sum(w, axis=-1), weighted_vjp),
            lambda x, w: np.sum(w * x, -1) / np.sum(w, -1),
            inputs=pair(MATRIX, MATRIX, **POSITIVE),
            out=VECTOR,
            name="weighted",
        ),
        FIRST,
    ),
    "one entry in place of the sum of a row": Planted(
        rows(custom_gradient(columns, columns_vjp), lambda x, w: np.sin(x + w), inputs=pair(MATRIX, ("N", 1))), FIRST
    ),
    "the sign of the second of two broadcasts": Planted(
        made(
            custom_gradient(distances, distances_vjp),
            lambda x, w: ((x[:, None] - w[None]) ** 2).sum(-1),
            pair(MATRIX, ("K", "M")),
            outputs=(Output("y", WIDE, ("N", "K")),),
        ),
        FIRST,
    ),
}
