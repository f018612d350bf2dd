"""Sessions in which XLA compiles, each for several traces.

The executables of a session end with it. But TensorFlow starts ten threads for each session that compiles, whatever it
compiles: a session for each trace would take more threads than a container may have.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ops import Array, Tensor

# The most traces of a session. Each extends its graph, which TensorFlow then places anew, and all end together.
MEMBERS = 16

Call = Callable[..., list[Array]]
"""A call with the values of the feeds, and ``options`` for the run."""


class XlaSession:
    """A session for up to ``MEMBERS`` traces; ``members`` counts those that have a place in it."""

    def __init__(self) -> None:
        """Open a session without a trace."""
        self.members = 0
        self._graph, self._lock = tf.Graph(), threading.Lock()
        # The Python functions that a graph calls live as long as it.
        self._parts = list[tf.Graph]()
        self._session = tf.compat.v1.Session(graph=self._graph)

    @property
    def is_full(self) -> bool:
        """Whether no other trace has room."""
        return self.members >= MEMBERS

    def add(self, graph: tf.Graph, feeds: Sequence[Tensor], fetches: Sequence[Tensor]) -> Call:
        """Return a call of a complete graph in this session; any thread may add one."""
        names = [x.name for x in (*feeds, *fetches)]
        # The lock, because building a graph is not safe for threads; to run another part of it is.
        with self._lock, self._graph.as_default():
            self._parts.append(graph)
            found: Any = tf.import_graph_def(graph.as_graph_def(), return_elements=names, name="trace")
            inputs, results = found[: len(feeds)], found[len(feeds) :]
            return self._session.make_callable(results, feed_list=inputs, accept_options=True)


def is_compiled(graph: tf.Graph) -> bool:
    """Return whether XLA compiles a part of a graph: the program, or a function of its page."""
    return any(function.attr["_XlaMustCompile"].b for function in graph.as_graph_def().library.function)
