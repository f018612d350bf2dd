"""Limits of a trace: how many nodes its graphs may have, and until when it may add them.

TensorFlow traces in Python and cannot be stopped from outside. But each node passes through one method of its graph
before it is added: there, a trace that has reached a limit raises, as if the node were invalid.
"""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from app.errors import Entry, PullbackError, Unprocessable

# The most nodes of a trace. On two cores, a node takes 0.4 ms to trace, 0.5 ms to optimise at the first call, and
# 20 kB: 32,768 nodes take half a minute and 0.6 GB. Anyone may post a composition; other ops are the operator's.
MOST_OF_COMPOSITION, MOST = 1 << 15, 1 << 17
# Where a pullback beyond the first has multiplied the nodes so often, those that follow do at least the same: measured
# for chains and trees of products, squares and log1pexp. A chain of sums does not grow beyond the first order.
GROWTH = 3


class TooManyNodes(Unprocessable):
    """A trace would have too many nodes."""


@dataclass(eq=False)
class Limits:
    """The limits of one trace of ``op``: at most ``most`` nodes, until ``why_over`` returns an error.

    Once it has raised, ``stopped`` is the error: an op's code may have caught it, and the trace is not whole.
    """

    op: str
    most: int
    why_over: Callable[[], PullbackError | None]
    nodes: int = 0
    stopped: PullbackError | None = None

    def add_node(self) -> None:
        """Count a node; raises ``TooManyNodes`` if there are too many, and the error of ``why_over``."""
        self.nodes += 1
        if self.stopped is None:
            self.stopped = self._too_large(self.nodes) if self.nodes > self.most else self.why_over()
        if self.stopped is not None:
            raise self.stopped.with_traceback(None)

    def look_ahead(self, before: int, pullbacks: int) -> None:
        """Raise ``TooManyNodes`` if so many further ``pullbacks`` will make too many nodes.

        There were ``before`` nodes before the last pullback, which was not the first.
        """
        if self.nodes >= GROWTH * before and (expected := self.nodes * GROWTH**pullbacks) > self.most:
            self.stopped = self.stopped or self._too_large(expected)
            raise self.stopped.with_traceback(None)

    def _too_large(self, nodes: int) -> TooManyNodes:
        message = f"the graph of op {self.op} with this derivative would have at least {nodes} nodes"
        expected = f"at most {self.most}; take mode eager, which makes no graph, a lower order or fewer nodes"
        return TooManyNodes(f"mode: {message}", Entry(("mode",), message, expected, f"{nodes} nodes"))


class _Thread(threading.local):
    """The limits of the trace that each thread makes."""

    limits: Limits | None = None


_thread = _Thread()


@contextmanager
def limited(limits: Limits) -> Generator[None]:
    """Inside this block, each node that this thread adds to a graph counts. Ask afterwards what has ``stopped`` it."""
    outer, _thread.limits = _thread.limits, limits
    try:
        yield
    finally:
        _thread.limits = outer


def nodes() -> int:
    """Return the number of nodes that the trace of this thread has made."""
    return 0 if _thread.limits is None else _thread.limits.nodes


def look_ahead(before: int, pullbacks: int) -> None:
    """Do as ``Limits.look_ahead`` for the trace of this thread; nothing if it makes none with limits."""
    if _thread.limits is not None:
        _thread.limits.look_ahead(before, pullbacks)


def install() -> None:
    """Count the nodes of every graph; call this before any program is built."""
    # Private, because no public API is called for every node. The method refuses a node of a graph that is complete.
    graph: Any = tf.Graph
    if not hasattr(graph._check_not_finalized, "__wrapped__"):
        graph._check_not_finalized = _counted(graph._check_not_finalized)


def _counted(may_grow: Callable[[tf.Graph], None]) -> Callable[[tf.Graph], None]:
    def counted(graph: tf.Graph) -> None:
        may_grow(graph)
        if _thread.limits is not None:
            _thread.limits.add_node()

    counted.__wrapped__ = may_grow  # pyright: ignore[reportFunctionMemberAccess] - marks that this is installed
    return counted
