"""Gradients that are wrong at the first or last element: shifts, pads, gathers, scatters, sums and convolutions."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ops import Array, Attrs, Function, Input, InvalidInput, Output, Tensor, custom_gradient
from tests.gradcheck.planting import Planted
from tests.gradcheck.wrong.making import BOTH, MATRIX, WIDE, made, rows

FIRST = ("derivative",)
VECTOR = ("N",)


def after(x: Tensor) -> Tensor:
    """The element after each one, and 0 after the last."""
    return tf.concat([x[..., 1:], tf.zeros_like(x[..., :1])], axis=-1)


def before(x: Tensor) -> Tensor:
    """The element before each one, and 0 before the first."""
    return tf.concat([tf.zeros_like(x[..., :1]), x[..., :-1]], axis=-1)


def circular(x: Tensor) -> Tensor:
    return tf.roll(x, -1, axis=-1) - x


def circular_vjp(x: Tensor, dy: Tensor) -> Tensor:
    """The gradient of the circular difference is not circular."""
    return before(dy) - dy


def circular_reference(x: Array) -> Array:
    return np.roll(x, -1, -1) - x


def partial_sums(x: Tensor) -> Tensor:
    return tf.cumsum(x * x, axis=-1)


def partial_sums_vjp(x: Tensor, dy: Tensor) -> Tensor:
    """The sum of the gradient leaves out each element's own cotangent."""
    return 2 * x * tf.cumsum(dy, axis=-1, reverse=True, exclusive=True)


def partial_sums_reference(x: Array) -> Array:
    return np.cumsum(x**2, -1)


def mirrored(x: Tensor) -> Tensor:
    return tf.pad(tf.sin(x), [[1, 1]], mode="SYMMETRIC")


def mirrored_vjp(x: Tensor, dy: Tensor) -> Tensor:
    """The last element misses its mirror image."""
    inner = dy[1:-1]
    return tf.cos(x) * tf.concat([inner[:1] + dy[:1], inner[1:]], axis=0)


def mirrored_reference(x: Array) -> Array:
    return np.pad(np.sin(x), 1, mode="symmetric")


def gathered(x: Tensor, index: Tensor) -> Tensor:
    return tf.gather(x * x, index)


def gathered_vjp(x: Tensor, index: Tensor, dy: Tensor) -> tuple[Tensor, None]:
    """Of duplicate indices, the last one overwrites the others."""
    return 2 * x * tf.tensor_scatter_nd_update(tf.zeros_like(x), index[:, None], dy), None


def gathered_reference(x: Array, index: Array) -> Array:
    return x[index] ** 2


def scattered(x: Tensor, index: Tensor) -> Tensor:
    return tf.scatter_nd(index[:, None], tf.tanh(x), [4])


def scattered_vjp(x: Tensor, index: Tensor, dy: Tensor) -> tuple[Tensor, None]:
    """The last place counts as out of bounds."""
    slope = 1 - tf.square(tf.tanh(x))
    return slope * tf.gather(dy, tf.minimum(index, 2)), None


def scattered_reference(x: Array, index: Array) -> Array:
    return np.bincount(index, np.tanh(x), minlength=4)


def segments(x: Tensor, index: Tensor) -> Tensor:
    return tf.math.unsorted_segment_sum(x * x, index, 4)


def segments_vjp(x: Tensor, index: Tensor, dy: Tensor) -> tuple[Tensor, None]:
    """The first segment is lost, as if it were a padding."""
    return tf.where(index > 0, 2 * x * tf.gather(dy, index), tf.zeros_like(x)), None


def segments_reference(x: Array, index: Array) -> Array:
    return np.bincount(index, x**2, minlength=4)


def every_other(x: Tensor) -> Tensor:
    return tf.sin(x[::2])


def every_other_vjp(x: Tensor, dy: Tensor) -> Tensor:
    """Of an odd number of elements, the last one is lost."""
    n = tf.shape(x)[0]
    wide = tf.reshape(tf.stack([dy[: n // 2], tf.zeros_like(dy[: n // 2])], axis=1), [-1])
    return tf.cos(x) * tf.concat([wide, tf.zeros([n % 2], x.dtype)], axis=0)


def every_other_reference(x: Array) -> Array:
    return np.sin(x[::2])


def filtered(x: Tensor, w: Tensor) -> Tensor:
    """w[0] x[i - 1] + w[1] x[i] + w[2] x[i + 1], with 0 outside."""
    return w[0] * before(x) + w[1] * x + w[2] * after(x)


def filtered_circular(x: Tensor, w: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of w wraps around."""
    dx = w[0] * after(dy) + w[1] * dy + w[2] * before(dy)
    products = [tf.reduce_sum(dy * tf.roll(x, shift, axis=0)) for shift in (1, 0, -1)]
    return dx, tf.stack(products)


def filtered_unflipped(x: Tensor, w: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of x uses the kernel as it is, not flipped."""
    products = [tf.reduce_sum(dy * moved) for moved in (before(x), x, after(x))]
    return filtered(dy, w), tf.stack(products)


def filtered_reference(x: Array, w: Array) -> Array:
    return np.convolve(x, w[::-1], mode="full")[1:-1]


def leaned(x: Tensor) -> Tensor:
    """x[i] - x[i - 1] / 2, with the first element repeated."""
    return x - tf.concat([x[:1], x[:-1]], axis=0) / 2


def leaned_vjp(x: Tensor, dy: Tensor) -> Tensor:
    """The repeated element is forgotten."""
    return dy - after(dy) / 2


def leaned_reference(x: Array) -> Array:
    return x - np.concatenate([x[:1], x[:-1]]) / 2


def lower(x: Tensor) -> Tensor:
    return tf.linalg.band_part(x * x, -1, 0)


def lower_vjp(x: Tensor, dy: Tensor) -> Tensor:
    """The diagonal is lost."""
    triangle = tf.linalg.band_part(dy, -1, 0)
    return 2 * x * (triangle - tf.linalg.band_part(triangle, 0, 0))


def lower_reference(x: Array) -> Array:
    return np.tril(x**2)


def neighbours(x: Tensor) -> Tensor:
    return x * tf.roll(x, -1, axis=-1)


def neighbours_vjp(x: Tensor, dy: Tensor) -> Tensor:
    return dy * tf.roll(x, -1, axis=-1) + tf.roll(dy * x, 1, axis=-1)


def neighbours_cut(x: Tensor, dy: Tensor, ddx: Tensor) -> tuple[Tensor, Tensor]:
    """At second order, the first and the last element are no neighbours."""
    of_x = dy * after(ddx) + before(dy * ddx)
    return of_x, ddx * tf.roll(x, -1, axis=-1) + x * tf.roll(ddx, -1, axis=-1)


def neighbours_reference(x: Array) -> Array:
    return x * np.roll(x, -1, -1)


def image(x: Tensor, f: Tensor) -> Tensor:
    return tf.nn.conv2d(x, f, strides=1, padding="SAME")


def image_vjp(x: Tensor, f: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of x mirrors dy at the border, where it should be 0."""
    flipped = tf.transpose(tf.reverse(f, [0, 1]), [0, 1, 3, 2])
    wide = tf.pad(dy, [[0, 0], [1, 1], [1, 1], [0, 0]], mode="SYMMETRIC")
    swapped = tf.pad(tf.transpose(x, [3, 1, 2, 0]), [[0, 0], [1, 1], [1, 1], [0, 0]])
    df = tf.nn.conv2d(swapped, tf.transpose(dy, [1, 2, 0, 3]), strides=1, padding="VALID")
    return tf.nn.conv2d(wide, flipped, strides=1, padding="VALID"), tf.transpose(df, [1, 2, 0, 3])


def image_reference(x: Array, f: Array) -> Array:
    wide = np.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), axis=(1, 2))
    return np.einsum("nhwcij,ijcd->nhwd", windows, f)


def validate(inputs: Any, attrs: Attrs) -> None:
    size = 4
    if (inputs["index"] < 0).any() or (inputs["index"] >= size).any():
        raise InvalidInput("index", "an index is out of bounds", expected="0 to 3", got="another")


INDEX = Input("index", ("int32",), ("K",), differentiable=False, domain=(0.0, 4.0))
CHOICE, PLACES = (Input("x", WIDE, (4,)), INDEX), (Input("x", BOTH, ("K",)), INDEX)
LINE, KERNEL = (Input("x", WIDE, VECTOR),), Input("w", WIDE, (3,))
FILTERED = (*LINE, KERNEL)
PIXELS = (Input("x", WIDE, ("B", "H", "W", "C")), Input("f", WIDE, (3, 3, "C", "D")))
SQUARE = (Input("x", WIDE, ("N", "N")),)


def planted(
    f: Function, reference: Function, inputs: Sequence[Input], out: tuple[str | int, ...], **changes: Any
) -> Planted:
    """Return an op with a wrong first order, and an output of shape ``out``."""
    return Planted(made(f, reference, inputs, outputs=(Output("y", inputs[0].dtypes, out),), **changes), FIRST)


CIRCULAR, SUMS = custom_gradient(circular, circular_vjp), custom_gradient(partial_sums, partial_sums_vjp)
MIRRORED, GATHERED = custom_gradient(mirrored, mirrored_vjp), custom_gradient(gathered, gathered_vjp)
SCATTERED, SEGMENTS = custom_gradient(scattered, scattered_vjp), custom_gradient(segments, segments_vjp)
EVERY_OTHER, LEANED = custom_gradient(every_other, every_other_vjp), custom_gradient(leaned, leaned_vjp)
WRAPPED, UNFLIPPED = custom_gradient(filtered, filtered_circular), custom_gradient(filtered, filtered_unflipped)
LOWER, IMAGE = custom_gradient(lower, lower_vjp), custom_gradient(image, image_vjp)
NEIGHBOURS = custom_gradient(neighbours, neighbours_vjp, neighbours_cut)

OPS: dict[str, Planted] = {
    "a circular difference cut at the end": Planted(rows(CIRCULAR, circular_reference), FIRST),
    "a partial sum without its own element": Planted(rows(SUMS, partial_sums_reference, dtypes=BOTH), FIRST),
    "a mirror image lost at the end": planted(MIRRORED, mirrored_reference, LINE, ("P",)),
    "duplicate indices that overwrite": planted(GATHERED, gathered_reference, CHOICE, ("K",), validate=validate),
    "the last place of a scatter": planted(SCATTERED, scattered_reference, PLACES, (4,), validate=validate),
    "the first segment": planted(SEGMENTS, segments_reference, PLACES, (4,), validate=validate),
    "the last of an odd number of elements": planted(EVERY_OTHER, every_other_reference, LINE, ("H",)),
    "a kernel's gradient that wraps around": planted(WRAPPED, filtered_reference, FILTERED, VECTOR, name="wrapped"),
    "a kernel that is not flipped": planted(UNFLIPPED, filtered_reference, FILTERED, VECTOR, name="unflipped"),
    "a repeated end forgotten in the gradient": planted(LEANED, leaned_reference, LINE, VECTOR),
    "the diagonal of a triangle": planted(LOWER, lower_reference, SQUARE, ("N", "N")),
    "neighbours cut at second order": Planted(
        rows(NEIGHBOURS, neighbours_reference, name="neighbours_cut", out=MATRIX), ("second",)
    ),
    "an image mirrored at its border": planted(IMAGE, image_reference, PIXELS, ("B", "H", "W", "D")),
}
