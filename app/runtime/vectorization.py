"""A correction of TensorFlow's vectorisation, which evaluates many directions at once.

TensorFlow 2.21 adds 1 to the axes of ``tf.roll`` for the axis of the directions. That turns the last axis, -1, into 0:
the directions themselves are rolled, and the results are wrong.
"""

from functools import cache
from typing import Any

import tensorflow as tf

# Private, because TensorFlow refuses another converter of a kernel that has one.
from tensorflow.python.ops.parallel_for.pfor import (
    _pfor_converter_registry,  # pyright: ignore[reportPrivateUsage] - it has no public name
    wrap,
)

KERNEL, AXES = "Roll", 2


@cache
def correct() -> None:
    """Replace the converter of ``tf.roll`` by one that counts the axes from the first one, once in a process."""
    converter = _pfor_converter_registry[KERNEL]

    def converted(pfor_input: Any) -> Any:
        axes = pfor_input.unstacked_input(AXES)
        rank = tf.cast(tf.rank(pfor_input.stacked_input(0)) - 1, axes.dtype)
        pfor_input.inputs[AXES] = wrap(tf.math.floormod(axes, rank), False)
        return converter(pfor_input)

    _pfor_converter_registry[KERNEL] = converted
