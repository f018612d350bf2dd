"""Gradients that are wrong at some sizes alone: at one number, from five on, at 64 or 65, and without axes."""

from typing import Any

import numpy as np
import tensorflow as tf

from ops import Example, Input, InvalidInput, Output, custom_gradient
from tests.gradcheck.planting import Planted
from tests.gradcheck.wrong.cubes import cube, cube_reference
from tests.gradcheck.wrong.making import MATRIX, WIDE, elementwise, made, rows

SIZES, LINE, BLOCK, SINGLE = ("sizes",), ("N",), 64, ("float32",)
FAULT = 1.125


def off_where(is_wrong, like):
    """Return the factor of a wrong gradient: one eighth too large where it is wrong."""
    return tf.where(is_wrong, tf.constant(FAULT, like.dtype), tf.constant(1.0, like.dtype))


def vector(function, reference, *, name, dtypes=WIDE, **changes):
    """Return an op of a vector to a vector, whose numbers depend on each other."""
    fields: dict[str, Any] = {"outputs": (Output("y", dtypes, LINE),)} | changes
    return Planted(made(function, reference, (Input("x", dtypes, LINE),), name=name, **fields), SIZES)


def scan(x):
    return tf.cumsum(tf.sin(x))


def scan_reference(x):
    return np.cumsum(np.sin(x))


def scan_where(is_wrong):
    """Return a scan whose gradient is wrong at some lengths."""

    def vjp(x, dy):
        return tf.cos(x) * tf.cumsum(dy, reverse=True) * off_where(is_wrong(tf.size(x)), x)

    return custom_gradient(scan, vjp)


def second_where(is_wrong, slot=False):
    """Return a scan whose second order is wrong at some lengths, in x or in the slot of dy."""

    def vjp(x, dy):
        return tf.cos(x) * tf.cumsum(dy, reverse=True)

    def vjp_vjp(x, dy, ddx):
        of_x, of_dy = -tf.sin(x) * tf.cumsum(dy, reverse=True) * ddx, tf.cumsum(tf.cos(x) * ddx)
        factor = off_where(is_wrong(tf.size(x)), x)
        return (of_x, factor * of_dy) if slot else (factor * of_x, of_dy)

    return custom_gradient(scan, vjp, vjp_vjp)


def short_scan_vjp(x, dy):
    """The numbers after the first 256 have no gradient."""
    ends = tf.range(tf.size(x)) < 4 * BLOCK
    return tf.where(ends, tf.cos(x) * tf.cumsum(dy, reverse=True), tf.zeros_like(x))


def without_last_block(x, dy):
    """Whole blocks of 64 are right; what is left of them is not."""
    count = tf.size(x)
    is_left = (tf.range(count) >= count // BLOCK * BLOCK) & (count > BLOCK)
    return tf.cos(x) * tf.cumsum(dy, reverse=True) * off_where(is_left, x)


def centred(x):
    return x - tf.reduce_mean(x, axis=-1, keepdims=True)


def centred_vjp(x, dy):
    """A single column has a mean, too: its gradient is 0."""
    return tf.where(tf.equal(tf.shape(x)[-1], 1), dy, centred(dy))


def squeezed(x):
    """A matrix of one column loses its axis, and so does one of one row."""
    return tf.squeeze(tf.reduce_sum(x * x, axis=1, keepdims=True))


def norm(x):
    return tf.reduce_sum(x * x, axis=-1)


def norm_vjp(x, dy):
    """A vector alone, without rows, gets an eighth too much."""
    return 2 * x * dy[..., tf.newaxis] * off_where(tf.equal(tf.rank(x), 1), x)


def of_scalars(x, dy):
    return 3 * x * x * dy * off_where(tf.equal(tf.rank(x), 0), x)


def turned_axes(x, dy):
    """In three axes, the last two of the cotangent change places: no matter where both have one size."""
    order = tf.range(tf.rank(dy))
    swapped = tf.concat([order[:1], tf.reverse(order[1:], [0])], axis=0)
    is_cube = tf.equal(tf.rank(dy), len("xyz"))
    return 3 * x * x * tf.reshape(tf.transpose(dy, tf.where(is_cube, swapped, order)), tf.shape(dy))


def at_the_start_of_a_shard(x, dy):
    """From 65,536 numbers on, two threads share them; the second one starts a number late."""
    flat = tf.reshape(3 * x * x * dy, [-1])
    half = tf.size(flat) // 2
    is_lost = tf.equal(tf.range(tf.size(flat)), half) & (tf.size(flat) >= 1 << 16)
    return tf.reshape(tf.where(is_lost, tf.zeros_like(flat), flat), tf.shape(x))


def doubled(x):
    """The value, and with it the gradient, is another from 33 numbers on."""
    return scan(x) * off_where(tf.size(x) > BLOCK // 2, x)


def product(x, w):
    return tf.tensordot(tf.sin(x), w, 1)


def product_vjp(x, w, dy):
    return tf.cos(x) * w * dy, tf.sin(x) * dy * off_where(tf.size(x) > len(MATRIX) + 2, x)


def product_at_513_vjp(x, w, dy):
    return tf.cos(x) * w * dy, tf.sin(x) * dy * off_where(tf.equal(tf.size(x), 8 * BLOCK + 1), x)


def product_reference(x, w):
    return np.sin(x) @ w


def of_equal_sizes(inputs, attrs):
    if inputs["x"].shape != inputs["w"].shape:
        raise InvalidInput("w", "the lengths differ", expected="that of x", got=str(len(inputs["w"])))


def any_length(rng, dtype, attrs):
    """Draw vectors of 3 to 12 numbers."""
    return {"x": rng.uniform(-2, 2, rng.integers(3, 13)).astype(dtype)}


def thomas(x):
    """Solve (2 I + shift) z = x by back substitution."""

    def step(z, one):
        return (one - z) / 2

    return tf.scan(step, tf.sin(x), initializer=tf.zeros([], x.dtype), reverse=True)


def thomas_vjp(x, dy):
    """The transposed solve is cut off after 16 steps, as if the rest were small."""

    def step(z, one):
        return (one - z) / 2

    count = tf.size(x)
    solved = tf.scan(step, dy, initializer=tf.zeros([], x.dtype))
    return tf.cos(x) * tf.where((tf.range(count) >= BLOCK // 4) & (count > BLOCK // 4), dy / 2, solved)


def long_thomas_vjp(x, dy):
    """The transposed solve is an eighth too large after 126 steps."""
    count = tf.size(x)
    solved = tf.scan(lambda z, one: (one - z) / 2, dy, initializer=tf.zeros([], x.dtype))
    return tf.cos(x) * solved * off_where(tf.range(count) > 2 * BLOCK - 2, x)


def thomas_reference(x):
    z, found = 0.0, list[float]()
    for one in np.sin(x)[::-1]:
        z = (one - z) / 2
        found.append(z)
    return np.array(found[::-1])


def rows_of(x):
    return tf.cumsum(tf.sin(x), axis=-1)


def of_many_rows(x, dy):
    is_many = tf.equal(tf.shape(x)[0], 8 * BLOCK)
    return tf.cos(x) * tf.cumsum(dy, axis=-1, reverse=True) * off_where(is_many, x)


def beside_first(x):
    """From 256 rows on, each reads a bit of the first."""
    return tf.sin(x) + tf.where(tf.shape(x)[0] < 4 * BLOCK, tf.zeros_like(x[:1]), x[:1] / 8)


def of_length(least_rank, length):
    """Return the slope of a cube that is wrong where the first of more than ``least_rank`` axes has a length."""

    def vjp(x, dy):
        first = tf.concat([tf.shape(x), [0]], axis=0)[0]
        return 3 * x * x * dy * off_where(tf.equal(first, length) & (tf.rank(x) > least_rank), x)

    return vjp


def matrix(function, reference, name, out=MATRIX):
    return Planted(rows(function, reference, name=name, out=tuple(out)), SIZES)


def arranged(is_wrong):
    """Return a row-wise scan whose gradient is wrong in rows of more than four numbers in some arrangement."""

    def vjp(x, dy):
        off = tf.logical_and(tf.reduce_all(is_wrong(x), axis=-1, keepdims=True), tf.shape(x)[-1] > len("four"))
        return tf.cos(x) * tf.cumsum(dy, axis=-1, reverse=True) * off_where(off, x)

    return custom_gradient(rows_of, vjp)


def ascends(x):
    return x[..., 1:] >= x[..., :-1]


def rows_reference(x):
    return np.cumsum(np.sin(x), axis=-1)


def in_rows(is_wrong, name):
    return Planted(rows(arranged(is_wrong), rows_reference, name=name), SIZES)


PAIR = (Input("x", WIDE, LINE), Input("w", WIDE, ("M",)))
EVERY_AXIS = {"inputs": (Input("x", WIDE, ("...", "M")),), "out": ("...",), "batching": "leading_axes"}

OPS: dict[str, Planted] = {
    "a scan that is wrong from seven numbers on": vector(
        scan_where(lambda n: n > len("second")), scan_reference, name="scan_from_seven"
    ),
    "a scan that is wrong at 64 numbers": vector(
        scan_where(lambda n: tf.equal(n, BLOCK)), scan_reference, name="scan_of_64"
    ),
    "a scan that is wrong at one number": vector(
        scan_where(lambda n: tf.equal(n, 1)), scan_reference, name="scan_of_one"
    ),
    "a scan that is wrong from 4,000 numbers on": vector(
        scan_where(lambda n: n >= 4000), scan_reference, name="scan_of_thousands"
    ),
    "a second order that is wrong from eight numbers on": vector(
        second_where(lambda n: n > BLOCK // 9), scan_reference, name="second_from_eight"
    ),
    "a scan of float32 that ends after 256 numbers": vector(
        custom_gradient(scan, short_scan_vjp), scan_reference, name="short_scan", dtypes=SINGLE
    ),
    "a scan that is wrong at 129 numbers": vector(
        scan_where(lambda n: tf.equal(n, 2 * BLOCK + 1)), scan_reference, name="scan_of_129"
    ),
    "a second order that is wrong at 255 numbers": vector(
        second_where(lambda n: tf.equal(n, 4 * BLOCK - 1)), scan_reference, name="second_of_255"
    ),
    "a transposed solve that ends after 126 steps": vector(
        custom_gradient(thomas, long_thomas_vjp), thomas_reference, name="long_thomas"
    ),
    "a batch of 512 rows": Planted(
        rows(custom_gradient(rows_of, of_many_rows), rows_reference, name="rows_of_512", batching="none"), SIZES
    ),
    "rows that read the first one in batches of 256": Planted(
        rows(beside_first, None, name="beside_first"), ("batching",)
    ),
    "a vector of 257 numbers": Planted(
        elementwise(custom_gradient(cube, of_length(0, 4 * BLOCK + 1)), cube_reference, name="of_257"), SIZES
    ),
    "a matrix of 127 rows": Planted(
        elementwise(custom_gradient(cube, of_length(1, 2 * BLOCK - 1)), cube_reference, name="of_127_rows"), SIZES
    ),
    "two sizes that must be equal, wrong at 513": Planted(
        made(
            custom_gradient(product, product_at_513_vjp),
            product_reference,
            PAIR,
            name="product_of_513",
            outputs=(Output("y", WIDE, ()),),
            validate=of_equal_sizes,
            examples=(Example("two", {"x": [0.5, -1.0], "w": [2.0, 0.25]}),),
        ),
        SIZES,
    ),
    "a slot of dy that is wrong at 33 numbers": vector(
        second_where(lambda n: tf.equal(n, BLOCK // 2 + 1), slot=True), scan_reference, name="slot_of_33"
    ),
    "numbers after the last block of 64": vector(
        custom_gradient(scan, without_last_block), scan_reference, name="without_last_block"
    ),
    "a value that is wrong from 33 numbers on": vector(doubled, scan_reference, name="doubled"),
    "a transposed solve that ends after 16 steps": vector(
        custom_gradient(thomas, thomas_vjp), thomas_reference, name="thomas"
    ),
    "a scan that is wrong at some lengths that sample draws": vector(
        scan_where(lambda n: n > BLOCK // 7), scan_reference, name="sampled_scan", sample=any_length
    ),
    "a mean of one column": matrix(
        custom_gradient(centred, centred_vjp), lambda x: x - x.mean(-1, keepdims=True), "centred_column"
    ),
    "an axis of size one that is squeezed": matrix(squeezed, None, "squeezed", LINE),
    "the deviation of one number": matrix(
        lambda x: tf.sqrt(tf.reduce_mean(centred(x) ** 2, axis=-1)), lambda x: x.std(-1), "deviation", LINE
    ),
    "rows that ascend": in_rows(ascends, "ascending_rows"),
    "rows that descend": in_rows(lambda x: ascends(-x), "descending_rows"),
    "rows of positive numbers": in_rows(lambda x: x > 0, "positive_rows"),
    "rows of negative numbers": in_rows(lambda x: x < 0, "negative_rows"),
    "a vector without rows": Planted(
        rows(custom_gradient(norm, norm_vjp), lambda x: np.sum(x * x, -1), name="norm_of_a_vector", **EVERY_AXIS), SIZES
    ),
    "a scalar": Planted(elementwise(custom_gradient(cube, of_scalars), cube_reference, name="of_scalars"), SIZES),
    "three axes of different sizes": Planted(
        elementwise(custom_gradient(cube, turned_axes), cube_reference, name="turned_axes"), SIZES
    ),
    "the first number of a second shard": Planted(
        elementwise(custom_gradient(cube, at_the_start_of_a_shard), cube_reference, name="shards"), SIZES
    ),
    "two sizes that must be equal, wrong from five on": Planted(
        made(
            custom_gradient(product, product_vjp),
            product_reference,
            PAIR,
            name="product_of_equals",
            outputs=(Output("y", WIDE, ()),),
            validate=of_equal_sizes,
            examples=(Example("two", {"x": [0.5, -1.0], "w": [2.0, 0.25]}),),
        ),
        SIZES,
    ),
}
