"""What the graph of a trace shows of the op's Python: its operations and constants, and whether it draws numbers."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from app.runtime.kernels import PYTHON, is_random, nodes_of
from app.runtime.modes import Trace

WIDE = frozenset({tf.float64.as_datatype_enum, tf.complex128.as_datatype_enum})
NARROW = frozenset(each.as_datatype_enum for each in (tf.float32, tf.float16, tf.bfloat16, tf.complex64))
# The kinds of attributes that Python's numbers and TensorFlow's types become. The others are names, which are unique.
KINDS = ("type", "i", "f", "b", "tensor")


def contents(trace: Trace) -> Counter[tuple[object, ...]]:
    """Return how often the graph has each operation with its types and constants, in any order.

    TensorFlow adds the terms of a gradient in an order that varies from trace to trace; their number does not.
    """
    return Counter((node.op, *_attributes(node)) for node in nodes_of(trace.graph_def))


def random_kernels(trace: Trace) -> list[str]:
    """Return the kinds of kernels that draw other random numbers at each call."""
    return sorted(filter(is_random, {str(node.op) for node in nodes_of(trace.graph_def)}))


def has_narrow_floats(trace: Trace) -> bool:
    """Return whether the graph has numbers of a float or complex type that is narrower than float64."""
    attributes = (value for node in nodes_of(trace.graph_def) for value in node.attr.values())
    return any(not NARROW.isdisjoint({value.type, value.tensor.dtype, *value.list.type}) for value in attributes)


def narrowing_casts(trace: Trace) -> list[str]:
    """Return the types to which the graph rounds numbers of float64."""
    casts = (node.attr for node in nodes_of(trace.graph_def) if node.op == "Cast" and node.attr["SrcT"].type in WIDE)
    return sorted({tf.as_dtype(attr["DstT"].type).name for attr in casts if attr["DstT"].type in NARROW})


def calls_python(trace: Trace) -> bool:
    """Return whether the graph calls Python, such as functions of NumPy."""
    return any(node.op in PYTHON for node in nodes_of(trace.graph_def))


def _attributes(node: Any) -> Iterator[object]:
    for name in sorted(node.attr):
        value = node.attr[name]
        kind = value.WhichOneof("value")
        is_text = kind == "tensor" and value.tensor.dtype == tf.string.as_datatype_enum
        if kind in KINDS and not name.startswith("_") and not is_text:
            yield name, value.SerializeToString(deterministic=True)
