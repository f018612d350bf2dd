"""The nodes of a graph of ops in TensorFlow's errors: all kernels of a node are in a scope that names it.

The kernels of its gradients have the scope in their names too. TensorFlow optimizes graphs in the order of names, so
that the last bits of results may depend on them: only a graph that looks for the cause of an error has these.
"""

import re
from collections.abc import Generator
from contextlib import contextmanager, nullcontext

import tensorflow as tf

from app.runtime.messages import text_of

# Two dots end the scope: TensorFlow may add a number to a name that is taken.
_SCOPE = re.compile(r"graph_node\.([a-z][a-z0-9_]{0,63})\.([a-z][a-z0-9_.]*?)\.\.")
_NOTE = "raised by "


def node_text(name: str, op: str) -> str:
    """Return how messages name a node: ``node norm (safe_norm)``."""
    return f"node {name} ({op})"


@contextmanager
def node_scope(name: str, op: str, *, in_names: bool) -> Generator[None]:
    """Inside this block, errors that TensorFlow raises are those of a node; its kernels may have it in their names."""
    with tf.name_scope(f"graph_node.{name}.{op}..") if in_names else nullcontext():
        try:
            yield
        except tf.errors.OpError as error:
            # Eager mode reports no names of kernels.
            error.add_note(_NOTE + node_text(name, op))
            raise


def node_of(error: BaseException) -> str:
    """Return the node that has raised an error, as ``node_text``; "" if it is unknown."""
    notes: list[str] = getattr(error, "__notes__", [])
    # A graph may be a node of another: the last note and the first scope are the outermost.
    for note in reversed(notes):
        if note.startswith(_NOTE):
            return note.removeprefix(_NOTE)
    found = _SCOPE.search(text_of(error))
    return node_text(found[1], found[2]) if found else ""
