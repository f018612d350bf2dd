"""Gathers, scatters, segments and masks: integer and bool inputs, and indices that repeat."""

import numpy as np
import tensorflow as tf
from pydantic import Field

from ops import Attrs, Example, Input, InvalidInput, Output, custom_gradient
from tests.gradcheck.hard.exact import Hard, collected
from tests.gradcheck.hard.making import BOTH, WIDE, structured

TABLE = [[1.0, -2.0], [0.5, 3.0], [0.25, -1.0]]
IMAGE = [[0.0, 1.0, 3.0], [-1.0, 2.0, 0.5], [4.0, -2.0, 1.0]]
SEGMENTS = 4


class LagAttrs(Attrs):
    """How far to shift, and whether the ends meet."""

    lag: int = Field(default=1, ge=0, le=4)
    circular: bool = False


def indices_below(count):
    """Return a ``validate`` of an index into the rows of x, or below ``count``."""

    def validate(inputs, attrs):
        limit = len(inputs["x"]) if count is None else count
        if ((inputs["index"] < 0) | (inputs["index"] >= limit)).any():
            raise InvalidInput("index", "index out of range", expected=f"0 to {limit - 1}", got="another index")

    return validate


def gather_vjp(x, index, dy):
    """Sum dy over the places of each row, which may repeat."""
    return tf.tensor_scatter_nd_add(tf.zeros_like(x), index[:, None], dy), None


def segment_squares_vjp_vjp(x, index, dy, ddx):
    slot = tf.math.unsorted_segment_sum(2 * x * ddx, index, SEGMENTS)
    return 2 * tf.gather(dy, index) * ddx, None, slot


def segment_squares_reference(x, index):
    y = np.zeros((SEGMENTS, *x.shape[1:]))
    np.add.at(y, index, np.square(x))
    return y


def bilinear(image, at):
    """The image between its pixels: at is (row, column), cut to the image."""
    most = tf.cast(tf.shape(image) - 2, tf.int32)
    corner = tf.clip_by_value(tf.cast(tf.floor(at), tf.int32), 0, most)
    part = at - tf.cast(corner, at.dtype)
    row, column = part[:, 0], part[:, 1]

    def pixel(down, right):
        return tf.gather_nd(image, corner + tf.constant([down, right]))

    upper = (1 - column) * pixel(0, 0) + column * pixel(0, 1)
    lower = (1 - column) * pixel(1, 0) + column * pixel(1, 1)
    return (1 - row) * upper + row * lower


def bilinear_reference(image, at):
    corner = np.clip(np.floor(at).astype(int), 0, np.array(image.shape) - 2)
    (r, c), (i, j) = (at - corner).T, corner.T
    upper = (1 - c) * image[i, j] + c * image[i, j + 1]
    lower = (1 - c) * image[i + 1, j] + c * image[i + 1, j + 1]
    return (1 - r) * upper + r * lower


def places(rng, dtype, attrs):
    """Draw an image, and places between its pixels."""
    whole, part = rng.integers(0, 3, (5, 2)), rng.uniform(0.1, 0.9, (5, 2))
    return {"image": rng.uniform(-2, 2, (4, 4)).astype(dtype), "at": (whole + part).astype(dtype)}


def require_inside(inputs, attrs):
    at, shape = np.asarray(inputs["at"], np.float64), np.array(inputs["image"].shape)
    if not ((at >= 0) & (at <= shape - 1)).all():
        raise InvalidInput("at", "outside the image", expected="a place in the image", got="another place")


def masked_log(x, mask):
    """log x where the mask is true and x > 0, else 0, without a 0·∞ in the gradient."""
    keep = tf.logical_and(mask, tf.greater(x, 0))
    return tf.where(keep, tf.math.log(tf.where(keep, x, tf.ones_like(x))), tf.zeros_like(x))


def masked_log_reference(x, mask):
    keep = np.logical_and(mask, x > 0)
    return np.where(keep, np.log(np.where(keep, x, 1)), 0)


def lagged_product(x, *, lag, circular):
    """x[i] x[i - lag]."""
    moved = tf.roll(x, lag, axis=-1)
    if not circular:
        moved = tf.where(tf.less(tf.range(tf.shape(x)[-1]), lag), tf.zeros_like(x), moved)
    return x * moved


def lagged_product_vjp(x, dy, *, lag, circular):
    keep = (
        tf.ones_like(x)
        if circular
        else tf.cast(tf.greater_equal(tf.range(tf.shape(x)[-1]), lag), x.dtype) * tf.ones_like(x)
    )
    return dy * keep * tf.roll(x, lag, axis=-1) + tf.roll(dy * keep * x, -lag, axis=-1)


def lagged_product_reference(x, *, lag, circular):
    moved = np.roll(x, lag, axis=-1)
    if not circular:
        moved[..., :lag] = 0
    return x * moved


def masked_mean(x, mask):
    weights = tf.cast(mask, x.dtype)
    return tf.math.divide_no_nan(tf.reduce_sum(weights * x * x, axis=-1), tf.reduce_sum(weights, axis=-1))


def cross_entropy_reference(x, index):
    return np.logaddexp.reduce(x, axis=-1) - np.take_along_axis(x, index[:, None], axis=-1)[:, 0]


X = Input("x", BOTH, ("N", "M"))
INDEX = Input("index", ("int32",), ("K",), differentiable=False, domain=(0.0, 3.0))
ROW = Input("index", ("int32",), ("N",), differentiable=False, domain=(0.0, 3.0))
MASK = Input("mask", ("bool",), ("N", "M"), differentiable=False)
CHOSEN = {"x": TABLE, "mask": [[True, False], [True, True], [False, False]]}
SERIES = {"x": [[1.0, -2.0, 0.5, 3.0]]}

OPS = collected(
    Hard(
        structured(
            "gather_rows",
            custom_gradient(tf.gather, gather_vjp),
            lambda x, index: x[index],
            {"x": TABLE, "index": [0, 2, 2, 2, 1]},
            inputs=(X, INDEX),
            outputs=(Output("y", BOTH, ("K", "M")),),
            validate=indices_below(None),
        )
    ),
    Hard(
        structured(
            "gathered_cubes",
            lambda x, index: tf.gather(x, index) ** 3,
            lambda x, index: x[index] ** 3,
            {"x": TABLE, "index": [1, 1, 0]},
            inputs=(X, INDEX),
            outputs=(Output("y", BOTH, ("K", "M")),),
            validate=indices_below(None),
        )
    ),
    Hard(
        structured(
            "segment_squares",
            custom_gradient(
                lambda x, index: tf.math.unsorted_segment_sum(tf.square(x), index, SEGMENTS),
                lambda x, index, dy: (2 * x * tf.gather(dy, index), None),
                segment_squares_vjp_vjp,
            ),
            segment_squares_reference,
            {"x": TABLE, "index": [0, 3, 0]},
            inputs=(X, ROW),
            outputs=(Output("y", BOTH, (SEGMENTS, "M")),),
            validate=indices_below(SEGMENTS),
        )
    ),
    Hard(
        structured(
            "sparse_cross_entropy",
            lambda x, index: tf.nn.sparse_softmax_cross_entropy_with_logits(index, x),
            cross_entropy_reference,
            {"x": [[1.0, -2.0, 0.5], [0.5, 3.0, 0.5]], "index": [0, 2]},
            inputs=(Input("x", BOTH, ("N", 3)), ROW),
            outputs=(Output("y", BOTH, ("N",)),),
            batching="leading_axis",
            validate=indices_below(3),
        )
    ),
    # Without ``validate``: the author's sample alone says that no index is negative, and only then do the two agree.
    Hard(
        structured(
            "picked_by_one_hot",
            lambda x, index: tf.linalg.matvec(tf.one_hot(index, tf.size(x), dtype=x.dtype), x),
            lambda x, index: x[index],
            {"x": [1.0, -2.0, 0.5], "index": [0, 2, 2]},
            inputs=(Input("x", WIDE, ("N",)), Input("index", ("int32",), ("M",), differentiable=False)),
            outputs=(Output("y", WIDE, ("M",)),),
            sample=lambda rng, dtype, attrs: {"x": rng.uniform(-3, 3, 4), "index": rng.integers(0, 4, 3)},
        )
    ),
    Hard(
        structured(
            "bilinear",
            bilinear,
            bilinear_reference,
            {"image": IMAGE, "at": [[0.5, 0.25], [1.75, 1.5]]},
            inputs=(Input("image", WIDE, ("H", "W")), Input("at", WIDE, ("N", 2))),
            outputs=(Output("y", WIDE, ("N",)),),
            sample=places,
            validate=require_inside,
        )
    ),
    Hard(
        structured(
            "masked_log",
            masked_log,
            masked_log_reference,
            {"x": [1.0, 0.25, -1.0, 2.0], "mask": [True, False, True, True]},
            inputs=(Input("x", WIDE, domain=(0.1, 4.0), poles=(0.0,)), Input("mask", ("bool",), differentiable=False)),
            outputs=(Output("y", WIDE),),
            batching="elementwise",
        )
    ),
    Hard(
        structured(
            "masked_mean_square",
            masked_mean,
            lambda x, mask: (mask * x * x).sum(axis=-1) / np.maximum(mask.sum(axis=-1), 1),
            CHOSEN,
            inputs=(X, MASK),
            outputs=(Output("y", BOTH, ("N",)),),
            batching="leading_axis",
        )
    ),
    Hard(
        structured(
            "lagged_product",
            custom_gradient(lagged_product, lagged_product_vjp),
            lagged_product_reference,
            SERIES,
            inputs=(X,),
            outputs=(Output("y", BOTH, ("N", "M")),),
            batching="leading_axis",
            attrs=LagAttrs,
            examples=(Example("cut", SERIES), Example("circular", SERIES, {"lag": 2, "circular": True})),
        )
    ),
)
