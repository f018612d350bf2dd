"""The nodes of a graph of ops in TensorFlow's errors: all kernels of a node are in a scope that names it.

The kernels of its gradients have the scope in their names too. TensorFlow optimizes graphs in the order of names, so
that the last bits of results may depend on them: only a graph that looks for the cause of an error has these.
"""

import re

import tensorflow as tf

from app.runtime.messages import text_of

# Two dots end the scope: TensorFlow may add a number to a name that is taken.
_SCOPE = re.compile(r"graph_node\.([A-Za-z][A-Za-z0-9_]{0,63})\.([a-z][a-z0-9_.]*?)\.\.")


def node_text(name: str, op: str) -> str:
    """Return how messages name a node: ``node norm (safe_norm)``."""
    return f"node {name} ({op})"


def node_scope(name: str, op: str) -> tf.name_scope:
    """Return the scope of a node, which names its kernels while a graph is built."""
    return tf.name_scope(f"graph_node.{name}.{op}..")


def node_of(error: BaseException) -> str:
    """Return the node whose kernel has raised an error, as ``node_text``; "" if the error names none."""
    # A graph may be a node of another: the first scope is the outermost.
    found = _SCOPE.search(text_of(error))
    return node_text(found[1], found[2]) if found else ""
