"""Detection of graphs whose run time follows from the shapes of their inputs, and that never wait.

Any other kernel may sleep, loop as often as values require, or come from an op author. Graphs that do only arithmetic
are a part of these: XLA computes them as TensorFlow's kernels do.
"""

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from app.runtime.kernels import CALLS, KERNELS, OF_SHAPES, SIZES, nodes_of
from ops import bounded_kernels

ARITHMETIC = frozenset(name for name, kernel in KERNELS.items() if kernel.time == "arithmetic")
BOUNDED = frozenset(name for name, kernel in KERNELS.items() if kernel.time != "unknown") | CALLS


def is_arithmetic(graph: tf.Graph) -> bool:
    """Report whether a graph does only arithmetic, with kernels of C++ pages that say so, and calls no other."""
    return {node.op for node in graph.as_graph_def().node} <= ARITHMETIC | bounded_kernels()


def is_bounded(graph: tf.Graph) -> bool:
    """Report whether all kernels of a graph, and of those that it calls, end in a time that follows from shapes."""
    definition = graph.as_graph_def()
    if not {node.op for node in nodes_of(definition)} <= BOUNDED | bounded_kernels():
        return False
    called = definition.library.function
    functions = [(each.node_def, [arg.name for arg in each.signature.input_arg]) for each in called]
    return not any(_has_sizes_of_values(nodes, names) for nodes, names in ((definition.node, []), *functions))


def _has_sizes_of_values(nodes: Iterable[Any], arguments: Iterable[str]) -> bool:
    """Report whether the size of a tensor in a graph may follow from the values of its placeholders or arguments.

    The nodes of a graph follow those that they depend on.
    """
    of_values = set(arguments)
    for node in nodes:
        inputs = [name.partition(":")[0] in of_values for name in node.input if not name.startswith("^")]
        if any(inputs[operand] for operand in SIZES.get(node.op, ())):
            return True
        if node.op == "Placeholder" or (any(inputs) and node.op not in OF_SHAPES):
            of_values.add(node.name)
    return False
