"""Gradients that are wrong at the first or last element: shifts, pads, gathers, scatters, sums and convolutions."""

import numpy as np
import tensorflow as tf

from ops import Input, InvalidInput, Output, custom_gradient
from tests.gradcheck.planting import Planted
from tests.gradcheck.wrong.making import BOTH, MATRIX, WIDE, made, rows

FIRST = ("derivative",)
VECTOR = ("N",)


def after(x):
    """The element after each one, and 0 after the last."""
    return tf.concat([x[..., 1:], tf.zeros_like(x[..., :1])], axis=-1)


def before(x):
    """The element before each one, and 0 before the first."""
    return tf.concat([tf.zeros_like(x[..., :1]), x[..., :-1]], axis=-1)


def circular(x):
    return tf.roll(x, -1, axis=-1) - x


def circular_vjp(x, dy):
    """The gradient of the circular difference is not circular."""
    return before(dy) - dy


def partial_sums(x):
    return tf.cumsum(x * x, axis=-1)


def partial_sums_vjp(x, dy):
    """The sum of the gradient leaves out each element's own cotangent."""
    return 2 * x * tf.cumsum(dy, axis=-1, reverse=True, exclusive=True)


def mirrored(x):
    return tf.pad(tf.sin(x), [[1, 1]], mode="SYMMETRIC")


def mirrored_vjp(x, dy):
    """The last element misses its mirror image."""
    inner = dy[1:-1]
    return tf.cos(x) * tf.concat([inner[:1] + dy[:1], inner[1:]], axis=0)


def gathered(x, index):
    return tf.gather(x * x, index)


def gathered_vjp(x, index, dy):
    """Of duplicate indices, the last one overwrites the others."""
    return 2 * x * tf.tensor_scatter_nd_update(tf.zeros_like(x), index[:, None], dy), None


def scattered(x, index):
    return tf.scatter_nd(index[:, None], tf.tanh(x), [4])


def scattered_vjp(x, index, dy):
    """The last place counts as out of bounds."""
    slope = 1 - tf.square(tf.tanh(x))
    return slope * tf.gather(dy, tf.minimum(index, 2)), None


def segments(x, index):
    return tf.math.unsorted_segment_sum(x * x, index, 4)


def segments_vjp(x, index, dy):
    """The first segment is lost, as if it were a padding."""
    return tf.where(index > 0, 2 * x * tf.gather(dy, index), tf.zeros_like(x)), None


def every_other(x):
    return tf.sin(x[::2])


def every_other_vjp(x, dy):
    """Of an odd number of elements, the last one is lost."""
    n = tf.shape(x)[0]
    wide = tf.reshape(tf.stack([dy[: n // 2], tf.zeros_like(dy[: n // 2])], axis=1), [-1])
    return tf.cos(x) * tf.concat([wide, tf.zeros([n % 2], x.dtype)], axis=0)


def filtered(x, w):
    """w[0] x[i - 1] + w[1] x[i] + w[2] x[i + 1], with 0 outside."""
    return w[0] * before(x) + w[1] * x + w[2] * after(x)


def filtered_circular(x, w, dy):
    """The gradient of w wraps around."""
    dx = w[0] * after(dy) + w[1] * dy + w[2] * before(dy)
    products = [tf.reduce_sum(dy * tf.roll(x, shift, axis=0)) for shift in (1, 0, -1)]
    return dx, tf.stack(products)


def filtered_unflipped(x, w, dy):
    """The gradient of x uses the kernel as it is, not flipped."""
    products = [tf.reduce_sum(dy * moved) for moved in (before(x), x, after(x))]
    return filtered(dy, w), tf.stack(products)


def filtered_reference(x, w):
    return np.convolve(x, w[::-1], mode="full")[1:-1]


def leaned(x):
    """x[i] - x[i - 1] / 2, with the first element repeated."""
    return x - tf.concat([x[:1], x[:-1]], axis=0) / 2


def leaned_vjp(x, dy):
    """The repeated element is forgotten."""
    return dy - after(dy) / 2


def lower(x):
    return tf.linalg.band_part(x * x, -1, 0)


def lower_vjp(x, dy):
    """The diagonal is lost."""
    triangle = tf.linalg.band_part(dy, -1, 0)
    return 2 * x * (triangle - tf.linalg.band_part(triangle, 0, 0))


def neighbours(x):
    return x * tf.roll(x, -1, axis=-1)


def neighbours_cut(x, dy, ddx):
    """At second order, the first and the last element are no neighbours."""
    of_x = dy * after(ddx) + before(dy * ddx)
    return of_x, ddx * tf.roll(x, -1, axis=-1) + x * tf.roll(ddx, -1, axis=-1)


def image(x, f):
    return tf.nn.conv2d(x, f, strides=1, padding="SAME")


def image_vjp(x, f, dy):
    """The gradient of x mirrors dy at the border, where it should be 0."""
    flipped = tf.transpose(tf.reverse(f, [0, 1]), [0, 1, 3, 2])
    wide = tf.pad(dy, [[0, 0], [1, 1], [1, 1], [0, 0]], mode="SYMMETRIC")
    swapped = tf.pad(tf.transpose(x, [3, 1, 2, 0]), [[0, 0], [1, 1], [1, 1], [0, 0]])
    df = tf.nn.conv2d(swapped, tf.transpose(dy, [1, 2, 0, 3]), strides=1, padding="VALID")
    return tf.nn.conv2d(wide, flipped, strides=1, padding="VALID"), tf.transpose(df, [1, 2, 0, 3])


def image_reference(x, f):
    wide = np.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), axis=(1, 2))
    return np.einsum("nhwcij,ijcd->nhwd", windows, f)


def validate(inputs, attrs):
    size = 4
    if (inputs["index"] < 0).any() or (inputs["index"] >= size).any():
        raise InvalidInput("index", "an index is out of bounds", expected="0 to 3", got="another")


INDEX = Input("index", ("int32",), ("K",), differentiable=False, domain=(0.0, 4.0))
CHOICE, PLACES = (Input("x", WIDE, (4,)), INDEX), (Input("x", BOTH, ("K",)), INDEX)
LINE, KERNEL = (Input("x", WIDE, VECTOR),), Input("w", WIDE, (3,))
FILTERED = (*LINE, KERNEL)
PIXELS = (Input("x", WIDE, ("B", "H", "W", "C")), Input("f", WIDE, (3, 3, "C", "D")))
SQUARE = (Input("x", WIDE, ("N", "N")),)


def planted(f, reference, inputs, out, **changes):
    """Return an op with a wrong first order, and an output of shape ``out``."""
    return Planted(made(f, reference, inputs, outputs=(Output("y", inputs[0].dtypes, out),), **changes), FIRST)


CIRCULAR, SUMS = custom_gradient(circular, circular_vjp), custom_gradient(partial_sums, partial_sums_vjp)
MIRRORED, GATHERED = custom_gradient(mirrored, mirrored_vjp), custom_gradient(gathered, gathered_vjp)
SCATTERED, SEGMENTS = custom_gradient(scattered, scattered_vjp), custom_gradient(segments, segments_vjp)
EVERY_OTHER, LEANED = custom_gradient(every_other, every_other_vjp), custom_gradient(leaned, leaned_vjp)
WRAPPED, UNFLIPPED = custom_gradient(filtered, filtered_circular), custom_gradient(filtered, filtered_unflipped)
LOWER, IMAGE = custom_gradient(lower, lower_vjp), custom_gradient(image, image_vjp)
NEIGHBOURS = custom_gradient(
    neighbours, lambda x, dy: dy * tf.roll(x, -1, axis=-1) + tf.roll(dy * x, 1, axis=-1), neighbours_cut
)

OPS: dict[str, Planted] = {
    "a circular difference cut at the end": Planted(rows(CIRCULAR, lambda x: np.roll(x, -1, -1) - x), FIRST),
    "a partial sum without its own element": Planted(rows(SUMS, lambda x: np.cumsum(x**2, -1), dtypes=BOTH), FIRST),
    "a mirror image lost at the end": planted(MIRRORED, lambda x: np.pad(np.sin(x), 1, mode="symmetric"), LINE, ("P",)),
    "duplicate indices that overwrite": planted(
        GATHERED, lambda x, index: x[index] ** 2, CHOICE, ("K",), validate=validate
    ),
    "the last place of a scatter": planted(
        SCATTERED, lambda x, index: np.bincount(index, np.tanh(x), minlength=4), PLACES, (4,), validate=validate
    ),
    "the first segment": planted(
        SEGMENTS, lambda x, index: np.bincount(index, x**2, minlength=4), PLACES, (4,), validate=validate
    ),
    "the last of an odd number of elements": planted(EVERY_OTHER, lambda x: np.sin(x[::2]), LINE, ("H",)),
    "a kernel's gradient that wraps around": planted(WRAPPED, filtered_reference, FILTERED, VECTOR, name="wrapped"),
    "a kernel that is not flipped": planted(UNFLIPPED, filtered_reference, FILTERED, VECTOR, name="unflipped"),
    "a repeated end forgotten in the gradient": planted(
        LEANED, lambda x: x - np.concatenate([x[:1], x[:-1]]) / 2, LINE, VECTOR
    ),
    "the diagonal of a triangle": planted(LOWER, lambda x: np.tril(x**2), SQUARE, ("N", "N")),
    "neighbours cut at second order": Planted(
        rows(NEIGHBOURS, lambda x: x * np.roll(x, -1, -1), name="neighbours_cut", out=MATRIX), ("second",)
    ),
    "an image mirrored at its border": planted(IMAGE, image_reference, PIXELS, ("B", "H", "W", "D")),
}
