"""Second orders that are wrong at special points alone: 0, ties, equal inputs, the ends of the domain."""

import numpy as np
import tensorflow as tf

from ops import Input, custom_gradient
from tests.gradcheck.planting import Planted
from tests.gradcheck.wrong.making import MATRIX, WIDE, elementwise, rows

SECOND, LINE, TOP = ("second",), ("N",), 2.0


def wave(x):
    return x * tf.sin(x)


def wave_where(at, of_x=0.0, of_dy=1.0, in_eager=False):
    """Return a wave whose second order has other factors at one number, everywhere or in eager mode alone."""

    def vjp(x, dy):
        return dy * (tf.sin(x) + x * tf.cos(x))

    def vjp_vjp(x, dy, ddx):
        is_there = tf.equal(x, at)
        if in_eager and not tf.executing_eagerly():
            is_there = tf.zeros_like(is_there)
        one = tf.ones_like(x)
        slot = (tf.sin(x) + x * tf.cos(x)) * ddx * tf.where(is_there, of_dy * one, one)
        return dy * ddx * (2 * tf.cos(x) - x * tf.sin(x)) * tf.where(is_there, of_x * one, one), slot

    return custom_gradient(wave, vjp, vjp_vjp)


def product(x, w):
    return x * tf.sin(w)


def product_where(is_wrong):
    """Return a product whose mixed second derivatives are lost at some points."""

    def vjp_vjp(x, w, dy, ddx, ddw):
        mixed = tf.where(is_wrong(x, w), tf.zeros_like(x), tf.cos(w))
        return dy * mixed * ddw, dy * (mixed * ddx - x * tf.sin(w) * ddw), tf.sin(w) * ddx + x * tf.cos(w) * ddw

    return custom_gradient(product, lambda x, w, dy: (dy * tf.sin(w), dy * x * tf.cos(w)), vjp_vjp)


def row_product(x):
    """TensorFlow's own second order divides 0 by 0 where a row has two zeros."""
    return tf.reduce_prod(x, axis=-1)


def cubes_of_ties(x, dy, ddx):
    """A number that equals its left neighbour gets twice its second derivative."""
    is_tied = tf.concat([tf.zeros_like(x[:, :1], tf.bool), tf.equal(x[:, 1:], x[:, :-1])], axis=1)
    factor = tf.where(is_tied, 2 * tf.ones_like(x), tf.ones_like(x))
    return factor * 6 * x * ddx * dy[:, None], tf.reduce_sum(3 * x * x * ddx, axis=-1)


def squared_distance_vjp(x, w, dy):
    d = 2 * (x - w) * dy[:, None]
    return d, -d


def distance_of_equal_rows(x, w, dy, ddx, ddw):
    """Equal rows have no second order."""
    differs = tf.cast(tf.reduce_any(tf.not_equal(x, w), axis=-1, keepdims=True), x.dtype)
    d = 2 * dy[:, None] * (ddx - ddw) * differs
    return d, -d, tf.reduce_sum(2 * (x - w) * (ddx - ddw), axis=-1)


def wave_op(name, function, check="second"):
    slot = {"domain": (-TOP, TOP)}
    return Planted(elementwise(function, lambda x: x * np.sin(x), name=name, slot=slot), (check,))


def product_op(name, is_wrong):
    return Planted(
        elementwise(product_where(is_wrong), lambda x, w: x * np.sin(w), names=("x", "w"), name=name), SECOND
    )


PAIR = (Input("x", WIDE, MATRIX), Input("w", WIDE, MATRIX))
OPS: dict[str, Planted] = {
    "no second order at 0": wave_op("second_at_0", wave_where(0.0)),
    "a second order that is halved at the end of the domain": wave_op("second_at_end", wave_where(TOP, 0.5)),
    "a slot of dy that is doubled at the end of the domain": wave_op(
        "slot_at_end", wave_where(TOP, 1.0, 2.0), "adjoint"
    ),
    "no second order at 0 in eager mode": wave_op("eager_at_0", wave_where(0.0, in_eager=True), "modes"),
    "no mixed second order at equal inputs": product_op("mixed_at_ties", tf.equal),
    "no mixed second order where both inputs are 0": product_op(
        "mixed_at_zeros", lambda x, w: tf.equal(x, 0) & tf.equal(w, 0)
    ),
    "TensorFlow's product of rows with two zeros": Planted(
        rows(row_product, lambda x: np.prod(x, -1), name="product_with_zeros", out=LINE), SECOND
    ),
    "a second order that ties double": Planted(
        rows(
            custom_gradient(
                lambda x: tf.reduce_sum(x * x * x, axis=-1), lambda x, dy: 3 * x * x * dy[:, None], cubes_of_ties
            ),
            lambda x: np.sum(x**3, -1),
            name="cubes_of_ties",
            out=LINE,
        ),
        SECOND,
    ),
    "no second order at equal rows": Planted(
        rows(
            custom_gradient(
                lambda x, w: tf.reduce_sum(tf.square(x - w), axis=-1), squared_distance_vjp, distance_of_equal_rows
            ),
            lambda x, w: np.sum((x - w) ** 2, -1),
            inputs=PAIR,
            name="equal_rows",
            out=LINE,
        ),
        SECOND,
    ),
}
