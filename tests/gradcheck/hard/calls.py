"""Right ops that one may call in many ways: in pieces, through NumPy, in any order of terms, for some of the inputs."""

import itertools

import numpy as np
import tensorflow as tf
from mpmath import mp

from ops import Input, Output, Tensor, custom_gradient
from tests.gradcheck.hard.exact import Hard, collected
from tests.gradcheck.hard.making import WIDE, elementwise, structured

VECTOR = [0.5, -1.25, 2.0, 1.0, -0.75]
MIXED = {"x": [0.5, -1.0], "w": [2.0, 0.25], "b": [-0.5, 1.5]}


def in_pieces(x):
    """An elementwise function that is computed in blocks of 1,000 numbers, the last one padded, as threads do."""
    flat = tf.reshape(x, [-1])
    blocks = tf.reshape(tf.pad(flat, [[0, tf.math.floormod(-tf.size(flat), 1000)]]), [-1, 1000])
    return tf.reshape(tf.reshape(tf.sin(blocks) * blocks, [-1])[: tf.size(flat)], tf.shape(x))


def copied(x):
    """Work in place, on a copy."""
    y = np.array(x)
    with np.errstate(over="ignore"):
        y *= y
        y *= x
    return y


def cube_by_numpy(x):
    y: Tensor = tf.numpy_function(copied, [x], x.dtype)
    y.set_shape(x.shape)
    return y


def chained(x, w):
    """Products and sums whose order Grappler may choose."""
    terms = [tf.linalg.matvec(x, w), tf.linalg.matvec(x @ x, w), tf.linalg.matvec(x @ x @ x, w), w, tf.sin(w)]
    return tf.add_n(terms) + terms[0] * terms[1] + tf.linalg.matvec(x, terms[0] + terms[2])


def chained_reference(x, w):
    a, b, c = x @ w, x @ x @ w, x @ x @ x @ w
    return a + b + c + w + np.sin(w) + a * b + x @ (a + c)


def reordered():
    """Return a sum whose terms each trace adds in another order."""
    traces = itertools.count()

    def total(x):
        terms, first = [tf.sin(x), tf.exp(-x * x), x / 3, tf.cos(x) / 7], next(traces) % 4
        return sum(terms[first:] + terms[:first], tf.zeros_like(x))

    return total


def total_reference(x):
    return np.sin(x) + np.exp(-x * x) + x / 3 + np.cos(x) / 7


def mixed(x, w, b):
    """Three inputs, each on a path of its own and on one that all share."""
    return tf.sin(x) * w + tf.exp(-b * b) * x + w * b


def mixed_vjp(x, w, b, dy):
    bell = tf.exp(-b * b)
    return (tf.cos(x) * w + bell) * dy, (tf.sin(x) + b) * dy, (w - 2 * b * bell * x) * dy


OPS = collected(
    Hard(elementwise("in_pieces", in_pieces, lambda x: x * np.sin(x), {"x": VECTOR}), lambda x: x * mp.sin(x)),
    Hard(
        elementwise(
            "cube_by_numpy",
            custom_gradient(cube_by_numpy, lambda x, dy: 3 * x * x * dy),
            lambda x: x**3,
            {"x": VECTOR},
            modes=("graph", "eager"),
        ),
        lambda x: x**3,
    ),
    Hard(
        structured(
            "chained",
            chained,
            chained_reference,
            {"x": [[0.5, -0.25], [0.75, 0.1]], "w": [1.5, -0.5]},
            inputs=(Input("x", WIDE, ("N", "N")), Input("w", WIDE, ("N",))),
            outputs=(Output("y", WIDE, ("N",)),),
        )
    ),
    Hard(elementwise("reordered", reordered(), total_reference, {"x": VECTOR})),
    Hard(
        elementwise(
            "mixed_paths",
            custom_gradient(mixed, mixed_vjp),
            lambda x, w, b: np.sin(x) * w + np.exp(-b * b) * x + w * b,
            MIXED,
        ),
        lambda x, w, b: mp.sin(x) * w + mp.exp(-b * b) * x + w * b,
    ),
)
