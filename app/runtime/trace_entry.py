"""One trace of the cache: its key, and itself: complete, in progress, or failed."""

import math
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from copy import copy
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig

from app.errors import Overloaded, PullbackError
from app.runtime.cancellation import Block, remaining_ms
from app.runtime.functions import OnThisThread
from ops import Array, Tensor

# The most traces of a session. Each extends its graph, which TensorFlow then places anew, and all end together.
MEMBERS = 16

Call: TypeAlias = Callable[[Sequence[Array]], list[Array]]
"""A call with the values of the feeds."""
# How long a trace may take in all that goes on without a caller.
BACKGROUND_S = 600.0
# So long past its deadline, a trace that has not stopped is late.
LATE_S = 5.0
# When a client should try again while a trace goes on.
RETRY_S = 5


# The executables of a session end with it. But TensorFlow starts ten threads for each session that compiles, whatever
# it compiles: a session for each trace would take more threads than a container may have.
class XlaSession:
    """A session for up to ``MEMBERS`` traces; ``members`` counts those that have a place in it."""

    def __init__(self, *, is_whole: bool = True) -> None:
        """Open a session without a trace. It ``is_whole`` if XLA compiles whole programs: nothing else optimises them.

        TensorFlow would rewrite them before, so that numbers would depend on the session.
        """
        self.members, self.is_whole = 0, is_whole
        self._graph, self._lock = tf.Graph(), threading.Lock()
        # The Python functions that a graph calls live as long as it.
        self._parts = list[tf.Graph]()
        rewriting = RewriterConfig(disable_meta_optimizer=is_whole)
        options = tf.compat.v1.GraphOptions(rewrite_options=rewriting)
        config = tf.compat.v1.ConfigProto(graph_options=options)
        self._session = tf.compat.v1.Session(graph=self._graph, config=config)

    @property
    def is_full(self) -> bool:
        """Whether no other trace has room."""
        return self.members >= MEMBERS

    def add(self, graph: tf.Graph, feeds: Sequence[Tensor], fetches: Sequence[Tensor], *, runs_here: bool) -> Call:
        """Return a call of a complete graph in this session, which ``runs_here``, on the thread that calls, or not.

        Any thread may add one.
        """
        names = [x.name for x in (*feeds, *fetches)]
        # The lock, because building a graph is not safe for threads; to run another part of it is.
        with self._lock, self._graph.as_default():
            self._parts.append(graph)
            found: Any = tf.import_graph_def(graph.as_graph_def(), return_elements=names, name="trace")
            inputs, results = found[: len(feeds)], found[len(feeds) :]
            if runs_here:
                return OnThisThread(self._session, inputs, results)
            return call_in(self._session, inputs, results)


def call_in(session: tf.compat.v1.Session, feeds: Sequence[Tensor], fetches: Sequence[Tensor]) -> Call:
    """Return a call of a part of a session's graph on TensorFlow's threads, which ends with the caller's time."""
    call = session.make_callable(fetches, feed_list=feeds, accept_options=True)
    return lambda leaves: call(*leaves, options=tf.compat.v1.RunOptions(timeout_in_ms=remaining_ms()))


def is_compiled(graph: tf.Graph) -> bool:
    """Return whether XLA compiles a part of a graph: the program, or a function of its page."""
    return any(function.attr["_XlaMustCompile"].b for function in graph.as_graph_def().library.function)


class Reference(NamedTuple):
    """What a trace is of: weak references, because it must not outlive the op.

    While there are traces of ``program``, its ``op`` holds it. ``kind`` tells programs that are made of it from it.
    """

    program: weakref.ref[Any]
    op: weakref.ref[Any]
    kind: str = ""


# The attribute of an op with its traced programs, by the keys of their traces.
_TRACED = "_traced"


TraceKey: TypeAlias = tuple[Reference, *tuple[Any, ...]]


@dataclass(eq=False)
class Entry:
    """A trace of ``op``, or its error, and when it was last used. XLA compiles it in its ``session``, if it has one.

    ``block`` is the work of its first caller, which it ``may_outlive``; ``is_in_background`` once it has, and there,
    ``active`` when it made its last node. A failed one is tried again after ``refused_until``. Times are those of
    ``time.monotonic``.
    """

    op: str
    owner: str
    is_compiled: bool
    is_permanent: bool
    used: int
    block: Block
    may_outlive: bool
    future: Future[Any] = field(default_factory=Future[Any])
    trace: Any = None
    session: XlaSession | None = None
    nodes: int = 0
    began: float = field(default_factory=time.monotonic)
    is_in_background: bool = False
    active: float = math.inf
    refused_until: float = math.inf

    @property
    def is_late(self) -> bool:
        """Whether it should have stopped."""
        return time.monotonic() > self.block.deadline + LATE_S

    def result(self) -> Any:
        """Return the complete trace, or raise its error."""
        if self.refused_until < math.inf:
            raise self.refusal()
        error = self.future.exception()
        # The traceback of a copy ends with it; one that is kept would keep the tensors of a request alive.
        if isinstance(error, PullbackError):
            raise copy(error)
        return self.future.result()

    def refusal(self) -> Overloaded:
        """Return the error for a request that needs this trace, which goes on in the background or took too long."""
        now = time.monotonic()
        if self.refused_until == math.inf:
            message = f"op {self.op} is still traced for this mode and derivative, since {now - self.began:.0f} s"
            return Overloaded(f"{message}; try again later", retry_after_s=RETRY_S)
        message = f"tracing op {self.op} for this mode and derivative took more than {BACKGROUND_S:.0f} s"
        cure = "try mode eager, which is not traced, or this again later"
        return Overloaded(f"{message}; {cure}", retry_after_s=max(1, math.ceil(self.refused_until - now)))


def traced(key: TraceKey) -> dict[TraceKey, Any]:
    """Return the traced programs that the op of a trace holds; empty if the op is gone."""
    op: object | None = key[0].op()
    found: dict[TraceKey, Any] = {} if op is None else vars(op).setdefault(_TRACED, {})
    return found
