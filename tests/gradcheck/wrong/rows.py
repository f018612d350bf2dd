"""Ops whose rows look independent, but depend on their neighbours in a way that few batches show."""

import numpy as np
import tensorflow as tf

from ops import Input, custom_gradient
from tests.gradcheck.planting import Planted
from tests.gradcheck.wrong.making import WIDE, elementwise, rows

BATCHING, LINE = ("batching",), ("N",)
MANY = 16


def square(x):
    return x * x


def square_vjp(x, dy):
    return 2 * x * dy


def square_reference(x):
    return x * x


def masked_mean(x):
    """Add the mean times 0: exact beside finite neighbours, NaN beside the others."""
    return x * x + 0 * tf.reduce_mean(x, axis=0, keepdims=True)


def from_16_rows_on(x):
    """Subtract a millionth of the mean if there are at least 16 rows."""
    is_large = tf.cast(tf.shape(x)[0] >= MANY, x.dtype)
    return x * x - 1e-6 * is_large * tf.reduce_mean(x, axis=0, keepdims=True)


def second_of_the_mean(x, dy, ddx):
    """Centre the second order over the rows."""
    return 2 * dy * ddx - 1e-3 * tf.reduce_mean(dy * ddx, axis=0, keepdims=True), 2 * x * ddx


def centred_vjp(x, dy):
    """Centre the gradient over the rows."""
    dx = 2 * x * dy
    return dx - 1e-3 * tf.reduce_mean(dx, axis=0, keepdims=True)


def by_position(x):
    """Read the position of a row beyond the eighth."""
    at = tf.cast(tf.range(tf.shape(x)[0]) >= MANY // 2, x.dtype)
    return x * x + 1e-3 * at[:, tf.newaxis]


def averaged_by_weights(x, w):
    """Divide the weights, which all rows use, by the number of rows."""
    return tf.linalg.matvec(x, w) / tf.cast(tf.shape(x)[0], x.dtype)


def averaged_gradient(x, w, dy):
    """Average the gradient of the weights over the rows, which is a sum."""
    dy = dy[:, tf.newaxis]
    return dy * w, tf.reduce_mean(dy * x, axis=0)


def weighted_vjp_vjp(x, w, dy, ddx, ddw):
    """Return the right second order, which is that of a sum."""
    column = dy[:, tf.newaxis]
    slot = tf.linalg.matvec(ddx, w) + tf.linalg.matvec(x, ddw)
    return column * ddw, tf.reduce_sum(column * ddx, axis=0), slot


def leading_mean(x):
    """Subtract the mean of all vectors."""
    return tf.reduce_sum(x * x, axis=-1) - 1e-3 * tf.reduce_mean(x)


def leading_mean_reference(x):
    return np.sum(x * x, axis=-1) - 1e-3 * np.mean(x)


WEIGHTED = (Input("x", WIDE, ("N", "M")), Input("w", WIDE, ("M",)))
VECTORS = (Input("x", WIDE, ("...", "M")),)

OPS: dict[str, Planted] = {
    "a row that is NaN because of its neighbour": Planted(rows(masked_mean, square_reference), BATCHING, "is nan"),
    "a number that is NaN because of its neighbour": Planted(
        elementwise(masked_mean, square_reference, name="masked_numbers"), BATCHING, "is nan"
    ),
    "rows that meet from 16 on": Planted(rows(from_16_rows_on, None), BATCHING),
    "rows that meet at second order alone": Planted(
        rows(custom_gradient(square, square_vjp, second_of_the_mean), square_reference, name="second_of_the_mean"),
        BATCHING,
    ),
    "rows that meet in the gradient alone": Planted(
        rows(custom_gradient(square, centred_vjp), square_reference, name="centred_vjp"), BATCHING
    ),
    "rows from the ninth on": Planted(rows(by_position, None), BATCHING),
    "shared weights that are divided by the number of rows": Planted(
        rows(averaged_by_weights, lambda x, w: x @ w / len(x), inputs=WEIGHTED, out=LINE, shared=("w",)), BATCHING
    ),
    "the gradient of shared weights averaged over the rows": Planted(
        rows(
            custom_gradient(tf.linalg.matvec, averaged_gradient, weighted_vjp_vjp),
            lambda x, w: x @ w,
            inputs=WEIGHTED,
            out=LINE,
            shared=("w",),
            name="averaged_gradient",
        ),
        BATCHING,
    ),
    "leading axes that share a mean": Planted(
        rows(leading_mean, leading_mean_reference, inputs=VECTORS, out=("...",), batching="leading_axes"), BATCHING
    ),
}
