"""Corrections of TensorFlow's vectorisation, which evaluates many directions at once.

TensorFlow 2.21 has wrong converters of some kernels. The converters of all kernels with a gradient were compared with
one direction after the other. Those of these kernels differed:

- ``Roll``: 1 is added to the axes for that of the directions. That turns the last axis, -1, into 0: the directions
  themselves are rolled.
- the gradients of ``SparseSegmentSum`` and its like: rows of a cotangent behind the last segment that has numbers are
  taken for rows of the next direction.
- ``TensorListGather``: the axis of the elements and that of the directions are exchanged in the result.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, TypeAlias

import tensorflow as tf

# Private, because TensorFlow refuses another converter of a kernel that has one.
from tensorflow.python.ops.parallel_for.pfor import (
    _pfor_converter_registry,  # pyright: ignore[reportPrivateUsage] - it has no public name
    wrap,
)

Converter: TypeAlias = Callable[[Any], Any]


@cache
def correct() -> None:
    """Replace the wrong converters, once in a process."""
    for kernel, correction in CORRECTIONS.items():
        _pfor_converter_registry[kernel] = partial(correction, _pfor_converter_registry[kernel])


def _rolled(converter: Converter, pfor_input: Any) -> Any:
    """Count the axes from the first one."""
    axes = pfor_input.unstacked_input(2)
    rank = tf.cast(tf.rank(pfor_input.stacked_input(0)) - 1, axes.dtype)
    pfor_input.inputs[2] = wrap(tf.math.floormod(axes, rank), False)
    return converter(pfor_input)


def _segment_gradient(converter: Converter, pfor_input: Any) -> Any:
    """Drop the rows behind the last segment that has numbers, which reach none."""
    segments = tf.nn.relu(tf.reduce_max(pfor_input.unstacked_input(2)) + 1)
    pfor_input.inputs[0] = wrap(pfor_input.stacked_input(0)[:, :segments], True)
    return converter(pfor_input)


def _gathered(converter: Converter, pfor_input: Any) -> Any:
    """Put the axis of the directions first, where all directions take the same elements of their lists."""
    of_directions = pfor_input.input(0)[1] and not pfor_input.input(1)[1]
    found = converter(pfor_input)
    if not of_directions:
        return found
    axes = tf.concat([[1, 0], tf.range(2, tf.rank(found.t))], axis=0)
    return wrap(tf.transpose(found.t, axes), True)


CORRECTIONS: dict[str, Callable[[Converter, Any], Any]] = {
    "Roll": _rolled,
    "TensorListGather": _gathered,
    **{f"SparseSegment{rule}Grad": _segment_gradient for rule in ("Mean", "SqrtN", "Sum")},
}
