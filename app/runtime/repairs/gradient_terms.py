"""Corrections of gradients in which TensorFlow 2.21 leaves out terms, or inputs, and says no word of it.

- ``tf.math.cumprod`` divides by numbers that may be 0, and takes 0 then; so does ``tf.reduce_prod`` at order 2.
- ``tf.pad`` has no gradient in ``constant_values``.
- A fused batch normalization has none in the mean and the variance that it is given, and none of those it returns.
- ``tf.nn.softmax_cross_entropy_with_logits`` takes for granted that labels add up to 1, and its second order lacks the
  derivatives in the labels.
- ``tf.math.segment_prod`` has 0 for the second order at factors of 0, and ``unsorted_segment_prod`` NaN.
- ``tf.dynamic_partition`` takes, in a graph, the partitions that nothing uses for as large as another.
- ``tf.math.zeta``, ``tf.math.betainc`` and ``tf.linalg.lstsq`` have none in some parameters: here it is NaN.
"""

from collections.abc import Callable, Sequence
from math import nan
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

# Private, because the public API cannot replace a gradient.
from tensorflow.python.framework.ops import gradient_registry

from app.runtime.repairs.complex_gradients import is_zero

RAW: Any = tf.raw_ops
Gradient: TypeAlias = Callable[..., Any]
_ENTRY = "type"
DOUBLINGS = 31
"""So many reach the length of every axis."""
_FUSED = ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")


def install() -> None:
    """Replace the gradients; call this before any program is built."""
    corrections: dict[str, Callable[[Gradient], Gradient]] = {
        "Betainc": _without(0, 1),
        "Cumprod": lambda _: _cumulative_product,
        "DynamicPartition": lambda _: _partitioned,
        "MatrixSolveLs": _without(2),
        "PadV2": _padded,
        "SegmentProd": lambda _: _product_of_segments,
        "SoftmaxCrossEntropyWithLogits": lambda _: _cross_entropy,
        "UnsortedSegmentProd": lambda _: _product_of_segments,
        "Zeta": _without(0),
        **dict.fromkeys(_FUSED, _normalized),
    }
    for kernel, correct in corrections.items():
        entry = gradient_registry._registry[kernel]
        if entry[_ENTRY].__module__ != __name__:
            corrected: Any = correct(entry[_ENTRY])
            corrected.__wrapped__ = entry[_ENTRY]  # marks that it is installed
            entry[_ENTRY] = corrected


def _cumulative_product(node: Any, dy: Any) -> list[Any]:
    """Return the gradient of y_i = x_1 ... x_i: x_1 ... x_{i-1} s_i with s_i = dy_i + x_{i+1} s_{i+1}.

    The recurrence takes log n steps: s_i of m terms is that of half as many, and as many from i + m/2 on.
    """
    axis = tf.get_static_value(node.inputs[1])
    if axis is None:
        raise ValueError("the gradient of cumprod: expected an axis that is known while TensorFlow traces")
    x: Any = tf.math.conj(node.inputs[0])
    rank: int = x.shape.rank
    axis = int(axis) % rank
    before = (slice(None),) * axis

    def later(values: Any, count: Any) -> Any:
        """Return the numbers that are ``count`` places on, and 0 behind the last."""
        moved, first = values[(*before, slice(count, None))], values[(*before, slice(count))]
        return tf.concat([moved, tf.zeros_like(first)], axis)

    def step(count: Any, factors: Any, sums: Any) -> tuple[Any, Any, Any]:
        return 2 * count, factors * later(factors, count), sums + factors * later(sums, count)

    if is_reverse := node.get_attr("reverse"):
        x, dy = tf.reverse(x, [axis]), tf.reverse(dy, [axis])
    start = 1, later(x, 1), later(dy, 1) if node.get_attr("exclusive") else dy
    _, _, sums = _doubled(step, start, x, axis)
    dx = tf.math.cumprod(x, axis, exclusive=True) * sums
    return [tf.reverse(dx, [axis]) if is_reverse else dx, None]


def _product_of_segments(node: Any, dy: Any) -> list[Any]:
    """Return the gradient of products of the rows of each segment: the product of all others, from both sides.

    Rows are sorted by segment. The products before and behind a row double their length with each step.
    """
    ids = tf.reshape(node.inputs[1], [-1])
    rest = tf.shape(node.inputs[0])[node.inputs[1].shape.rank :]
    x = tf.reshape(tf.math.conj(node.inputs[0]), tf.concat([tf.shape(ids), rest], 0))
    order = tf.argsort(ids, stable=True)
    x, ids = tf.gather(x, order), tf.gather(ids, order)
    others = _beside(x, ids) * tf.reverse(_beside(tf.reverse(x, [0]), tf.reverse(ids, [0])), [0])
    # Rows with a negative number belong to no segment.
    cotangents = tf.where(_as_rows(ids >= 0, x), tf.gather(dy, tf.maximum(ids, 0)), tf.zeros_like(x))
    dx = tf.reshape(tf.gather(others * cotangents, tf.argsort(order)), tf.shape(node.inputs[0]))
    return [dx, *(None for _ in node.inputs[1:])]


def _beside(x: Any, ids: Any) -> Any:
    """Return the product of all rows of the same segment that are before each row."""

    def before(values: Any, count: Any) -> Any:
        """Return for each row what is ``count`` rows before, and 1 where that is another segment or nothing."""
        rows = tf.range(tf.size(ids)) - count
        is_same = (rows >= 0) & (tf.gather(ids, tf.maximum(rows, 0)) == ids)
        return tf.where(_as_rows(is_same, x), tf.gather(values, tf.maximum(rows, 0)), tf.ones_like(values))

    def step(count: Any, products: Any) -> tuple[Any, Any]:
        return 2 * count, products * before(products, count)

    _, products = _doubled(step, (1, x), x, 0)
    return before(products, 1)


def _doubled(step: Callable[..., Any], state: tuple[Any, ...], x: Any, axis: int) -> tuple[Any, ...]:
    """Return the state when its first number, which each step doubles, has reached the length of an axis of ``x``."""
    if (length := x.shape[axis]) is not None:
        while state[0] < length:
            state = step(*state)
        return state

    def is_short(count: Any, *_: Any) -> Any:
        return count < tf.shape(x)[axis]

    shapes = tf.TensorShape([]), *(tf.TensorShape([None] * x.shape.rank) for _ in state[1:])
    return tf.while_loop(is_short, step, state, shapes, maximum_iterations=DOUBLINGS)


def _as_rows(flags: Any, x: Any) -> Any:
    return tf.reshape(flags, [-1] + [1] * (x.shape.rank - 1))


def _partitioned(node: Any, *dys: Any) -> list[Any]:
    data, partitions = node.inputs
    rows = tf.reshape(tf.range(tf.size(partitions)), tf.shape(partitions))
    places = RAW.DynamicPartition(data=rows, partitions=partitions, num_partitions=len(dys))
    dx = tf.zeros(tf.concat([[tf.size(partitions)], tf.shape(data)[tf.rank(partitions) :]], 0), data.dtype)
    for at, dy in zip(places, dys, strict=True):
        if not is_zero(dy):
            dx = tf.tensor_scatter_nd_update(dx, at[:, None], dy)
    return [tf.reshape(dx, tf.shape(data)), None]


def _padded(gradient: Gradient) -> Gradient:
    def corrected(node: Any, dy: Any) -> list[Any]:
        dx, *_ = gradient(node, dy)
        outside = tf.pad(tf.zeros_like(dx), node.inputs[1], constant_values=tf.ones([], dy.dtype))
        return [dx, None, tf.reduce_sum(dy * outside)]

    return corrected


def _cross_entropy(node: Any, dloss: Any, dslopes: Any) -> list[Any]:
    """Return the gradients of -Σ labels log p: p Σ labels - labels, and -log p.

    The second output of the kernel is its own gradient, p - labels; the labels themselves may be at hand no more.
    """
    logits, slopes = node.inputs[0], node.outputs[1]
    p, dlogits, dlabels = tf.nn.softmax(logits), tf.zeros_like(slopes), tf.zeros_like(slopes)
    if dloss is not None:
        dlogits = dloss[:, None] * (slopes - p * tf.reduce_sum(slopes, -1, keepdims=True))
        dlabels = -dloss[:, None] * tf.nn.log_softmax(logits)
    if not is_zero(dslopes):
        dlogits += p * (dslopes - tf.reduce_sum(p * dslopes, -1, keepdims=True))
        dlabels -= dslopes
    return [dlogits, dlabels]


def _normalized(gradient: Gradient) -> Gradient:
    def corrected(node: Any, dy: Any, *more: Any) -> list[Any]:
        x, data_format = node.inputs[0], node.get_attr("data_format")
        axis = 1 if data_format.startswith(b"NC") else x.shape.rank - 1
        layout = _Layout([each for each in range(x.shape.rank) if each != axis])
        dmean, dvariance = (None if is_zero(each) else each for each in more[:2])
        if not node.get_attr("is_training"):
            return layout.with_given_moments(node, dy, dmean, dvariance)
        dx, dscale, doffset, *_ = gradient(node, dy, *more)
        share, of_given = node.get_attr("exponential_avg_factor"), [None, None]
        if dmean is not None or dvariance is not None:
            dx += tf.cast(share * layout.of_moments(tf.cast(x, tf.float32), dmean, dvariance), x.dtype)
            of_given = [None if each is None or share == 1 else (1 - share) * each for each in (dmean, dvariance)]
        return [dx, dscale, doffset, *of_given]

    return corrected


class _Layout(NamedTuple):
    """The axes of the numbers that a batch normalization has one mean and one variance for."""

    axes: Sequence[int]

    def wide(self, moment: Any) -> Any:
        """Return a number for each channel with the rank of the input."""
        return tf.reshape(moment, [1 if axis in self.axes else -1 for axis in range(len(self.axes) + 1)])

    def of_moments(self, x: Any, dmean: Any, dvariance: Any) -> Any:
        """Return the gradient in x of the mean and of the unbiased variance."""
        count = tf.cast(tf.reduce_prod([tf.shape(x)[axis] for axis in self.axes]), x.dtype)
        dx = tf.zeros_like(x)
        if dmean is not None:
            dx += self.wide(dmean) / count
        if dvariance is not None:
            centred = x - tf.reduce_mean(x, self.axes, keepdims=True)
            dx += 2 * self.wide(dvariance) * centred / tf.maximum(count - 1, 1)
        return dx

    def with_given_moments(self, node: Any, dy: Any, dmean: Any, dvariance: Any) -> list[Any]:
        """Return the gradients of y = (x - mean) r scale + offset, with r = 1/√(variance + ε); it returns the moments.

        All sums are in float32, as TensorFlow's are.
        """
        x, scale, _, mean, variance = node.inputs
        wide, wide_dy = tf.cast(x, tf.float32), tf.cast(dy, tf.float32)
        r = tf.math.rsqrt(variance + node.get_attr("epsilon"))
        doffset = tf.reduce_sum(wide_dy, self.axes)
        along = tf.reduce_sum(wide_dy * (wide - self.wide(mean)), self.axes)
        of_given = [-scale * r * doffset, -scale * r**3 * along / 2]
        for at, more in enumerate((dmean, dvariance)):
            of_given[at] += 0 if more is None else more
        return [tf.cast(wide_dy * self.wide(scale * r), x.dtype), r * along, doffset, *of_given]


def _without(*missing: int) -> Callable[[Gradient], Gradient]:
    """Return a correction that puts NaN in place of the gradients that are missing, those in some inputs."""

    def correct(gradient: Gradient) -> Gradient:
        def corrected(node: Any, dy: Any) -> list[Any]:
            dxs = [*gradient(node, dy)]
            for at in missing:
                dxs[at] = tf.fill(tf.shape(node.inputs[at]), tf.constant(nan, dy.dtype))
            return dxs

        return corrected

    return correct
