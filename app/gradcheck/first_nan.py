"""Which kernel of TensorFlow gives the first NaN among the values of a sample: it gets none, and returns one."""

from contextlib import suppress
from typing import Any

import numpy as np
import tensorflow as tf

from app.autodiff.derivatives import values_up_to
from app.errors import OpFailed, Unprocessable
from app.gradcheck.sample import Sample
from app.runtime.kernels import CONTROL, KERNELS
from ops import Tensor

# The most numbers of all results inside a graph, if each were as large as the largest leaf.
MOST_NUMBERS = 1 << 22


def first_nan(sample: Sample) -> str:
    """Return the kernel, "" if none is found.

    Loops, branches and functions count as a whole, so the kernels inside them are not found. Nor are those of a graph
    that is large, or reads from outside.
    """
    with suppress(OpFailed, Unprocessable, tf.errors.OpError, TypeError, ValueError):
        return _first_nan(sample)
    return ""


def _first_nan(sample: Sample) -> str:
    leaves = values_up_to(sample.last, sample.point, sample.cotangents, sample.vectors).leaves
    function, graph = sample.trace.function, sample.trace.graph
    nodes: list[Any] = [node for node in graph.get_operations() if any(map(_has_numbers, node.outputs))]
    size = len(nodes) * max((leaf.size for leaf in leaves), default=1)
    if function.captured_inputs or size > MOST_NUMBERS:
        return ""
    fetched = [[[x for x in side if _has_numbers(x)] for side in (node.inputs, node.outputs)] for node in nodes]
    fed = {x.name: leaf for x, leaf in zip(function.inputs, leaves, strict=True)}
    with tf.compat.v1.Session(graph=graph) as session:
        found = session.run(fetched, fed)
    for node, (inputs, outputs) in zip(nodes, found, strict=True):
        if _has_nan(outputs) and not _has_nan(inputs):
            return str(node.type) if node.type in KERNELS.keys() - CONTROL else ""
    return ""


def _has_numbers(x: Tensor) -> bool:
    return x.dtype.is_floating or x.dtype.is_complex


def _has_nan(values: Any) -> bool:
    return any(np.isnan(value).any() for value in values)
