"""The cache of traces in this process.

A program is traced once per mode, dtypes and device, for all shapes (with XLA, once per shape). The cache is bounded:
the least recently used trace of the owner with the most of them is dropped for a new one, so that no owner displaces
the traces of another. Their nodes are bounded in the same way. An owner is an op, or the requests for an op with one
key. Dropping a trace frees its memory, except the executables that XLA compiles for a function: TensorFlow keeps these
for the life of the process. They are few, and the others run in sessions, whose executables end with them.

A trace whose caller no longer waits stops. That of an op which is no composition goes on in the background instead, for
a bounded time, so that the first request pays for the next ones. Requests that need it meanwhile get 503 with
``Retry-After``. It stops between two nodes; until it makes the next one, nothing can stop it.
"""

import itertools
import logging
import math
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, wait
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from app.errors import DeadlinePassed, Overloaded, PullbackError, too_late
from app.runtime import cancellation
from app.runtime.cancellation import Block
from app.runtime.trace_limits import TooManyNodes
from ops import Mode

# A trace takes about 0.25 MB; one that XLA compiles 0.75 MB (measured for ops of some twenty kernels).
TRACES_KEPT, COMPILED_KEPT = 2048, 512
# A node takes 12 to 20 kB. All traces together have at most so many, or else one is alone.
NODES_KEPT = 1 << 16
# The executables that may stay for the life of the process, and the share of them that one op may have.
PERMANENT, SHARE = 512, 0.5
# How many traces may go on without a caller, one for each owner, and how long each may take in all. After that,
# requests that need it are refused for ``REFUSED_S``. One that makes no node for ``IDLE_S`` leaves its place to others.
BACKGROUND, BACKGROUND_S, REFUSED_S, IDLE_S = 2, 600.0, 600.0, 30.0
# So long past its deadline, a trace that has not stopped is late.
LATE_S = 5.0
# When a client should try again while a trace goes on, and how often a thread that waits for one looks whether it does.
RETRY_S, LOOK_S = 5, 0.25

Stop: TypeAlias = Literal["deadline", "time", "nodes"]
STOPS: tuple[Stop, ...] = get_args(Stop)
WhyOver: TypeAlias = Callable[[], PullbackError | None]
"""Returns the error with which a trace must stop, ``None`` while it may go on."""


log = logging.getLogger("pullback")


class NotTraced(Exception):
    """A trace is missing, and this thread must not wait until it is made."""


@dataclass(eq=False)
class _Entry:
    """A trace of ``op``, or its error, and when it was last used.

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


class Traces:
    """Traces by key, which begins with the reference to a program.

    A failed trace keeps its error as its value, until it is displaced. A trace goes with its program.

    ``made`` and ``compiled`` count the traces since the start by owner, ``displaced`` those that were dropped, and
    ``stopped`` those that were stopped, by what they had too little of.
    """

    def __init__(self) -> None:
        """Create an empty cache."""
        self.made: Counter[str] = Counter()
        self.compiled: Counter[str] = Counter()
        self.stopped: Counter[Stop] = Counter()
        self.displaced = 0
        self._permanent: Counter[str] = Counter()
        self._entries: dict[TraceKey, _Entry] = {}
        self._clock = itertools.count(1)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return the number of traces in the cache."""
        return len(self._entries)

    def get(self, key: TraceKey) -> Any:
        """Return the trace for a key, ``None`` if there is none or it is not complete.

        Raises its error if it failed, and ``Overloaded`` if it goes on in the background, or took too long.
        """
        entry = self._entries.get(key)
        if entry is None:
            return None
        entry.used = next(self._clock)
        if entry.trace is not None:
            return entry.trace
        if time.monotonic() > entry.refused_until:
            self._forget(key, entry)
            return None
        if entry.future.done():
            return entry.result()
        if self._goes_on(entry) or entry.is_late:
            raise entry.refusal()
        return None

    def make(
        self,
        key: TraceKey,
        op: str,
        trace: Callable[[WhyOver], Any],
        *,
        is_compiled: bool,
        is_permanent: bool = False,
        may_outlive: bool = False,
    ) -> Any:
        """Return the result of ``trace(why_over)`` for this key, which is called once; later calls return the same.

        The trace counts for ``op``, outside of ``traces_of``. ``is_permanent``: the memory stays when the trace is
        dropped, so it never is. If it ``may_outlive`` its caller, and this thread may trace in the background, it goes
        on when the caller has gone. Raises whatever ``trace`` raised, ``DeadlinePassed`` when the caller has gone, and
        ``Overloaded`` as ``get``.
        """
        owner, block = _thread.owner or op, cancellation.current()
        while True:
            with self._lock:
                entry = self._entries.get(key)
                is_first = entry is None
                if entry is None:
                    used, outlives = next(self._clock), may_outlive and _thread.may_outlive
                    entry = self._entries[key] = _Entry(op, owner, is_compiled, is_permanent, used, block, outlives)
                    _traced(key)[key] = key[0].program()
                    self.made[owner] += 1
                    self.compiled[owner] += is_compiled
                    self._permanent[owner] += is_permanent
                    self._drop_some(entry)
            if is_first:
                return self._run(key, entry, trace)
            while not entry.future.done():
                if self._goes_on(entry) or entry.is_late:
                    raise entry.refusal()
                if block.is_over:
                    raise too_late()
                wait([entry.future], timeout=LOOK_S)
            # If only its first caller has gone, this one tries itself.
            if not isinstance(entry.future.exception(), DeadlinePassed):
                return entry.result()

    def _run(self, key: TraceKey, entry: _Entry, trace: Callable[[WhyOver], Any]) -> Any:
        """Make a trace on this thread; keep it, or its error, unless it was abandoned."""

        def why_over() -> PullbackError | None:
            if not entry.block.is_over:
                return None
            if not self._goes_on(entry):
                return too_late()
            entry.active = time.monotonic()
            return None if time.monotonic() < entry.began + BACKGROUND_S else entry.refusal()

        try:
            entry.trace = result = trace(why_over)
            entry.nodes = getattr(result, "nodes", 0)
            with self._lock:
                self._drop_large(entry)
        except BaseException as error:  # noqa: BLE001 - the op author's code may raise anything
            self._count(error, key, entry)
            # The traceback would keep the tensors of the first request alive.
            entry.future.set_exception(error.with_traceback(None))
        else:
            entry.future.set_result(result)
            if entry.is_in_background:
                log.info("op %s: traced in the background in %.0f s", entry.op, time.monotonic() - entry.began)
        return entry.result()

    def _count(self, error: BaseException, key: TraceKey, entry: _Entry) -> None:
        """Count a trace that was stopped, and decide when it is tried again."""
        match error:
            case DeadlinePassed():
                self.stopped["deadline"] += 1
                self._forget(key, entry)
            case Overloaded():
                self.stopped["time"] += 1
                entry.refused_until = time.monotonic() + REFUSED_S
                log.warning("op %s: a trace did not end within %.0f s, and was stopped", entry.op, BACKGROUND_S)
            case TooManyNodes():
                self.stopped["nodes"] += 1
                log.warning("op %s: a trace was stopped: %s", entry.op, error.entries[0].message)
            case _:
                pass

    @property
    def in_background(self) -> int:
        """The number of traces that go on without a caller, without those that make no node."""
        return sum(time.monotonic() < each.active + IDLE_S for each in self._background())

    def _background(self) -> list[_Entry]:
        return [each for each in list(self._entries.values()) if each.is_in_background and not each.future.done()]

    def _goes_on(self, entry: _Entry) -> bool:
        """Return whether a trace goes on without its caller; it may, unless too many do."""
        if entry.is_in_background or not (entry.may_outlive and entry.block.is_over):
            return entry.is_in_background
        with self._lock:
            if self.in_background >= BACKGROUND or any(each.owner == entry.owner for each in self._background()):
                return False
            entry.is_in_background, entry.active = True, time.monotonic()
        log.warning("op %s: a trace takes longer than its caller waits, and goes on in the background", entry.op)
        return True

    def _forget(self, key: TraceKey, entry: _Entry) -> None:
        """Drop an entry without a trace, so that it is tried again."""
        with self._lock:
            if self._entries.get(key) is entry:
                del self._entries[key]
                _traced(key).pop(key, None)
                self._permanent[entry.owner] -= entry.is_permanent

    def may_be_permanent(self, owner: str) -> bool:
        """Return whether another executable of an owner may stay for the life of the process."""
        owner = _thread.owner or owner
        return self._permanent[owner] < PERMANENT * SHARE and self._permanent.total() < PERMANENT

    def _drop_some(self, new: _Entry) -> None:
        """Drop the traces whose programs are gone, and the least recently used ones of the owners with the most.

        The rest leaves room for ``new``.
        """
        for key in [key for key in self._entries if key[0].op() is None]:
            del self._entries[key]
        others = {key: entry for key, entry in self._entries.items() if entry is not new and not entry.is_permanent}
        for limit, is_limited in ((TRACES_KEPT - 1, False), (COMPILED_KEPT - new.is_compiled, True)):
            entries = {key: entry for key, entry in others.items() if entry.is_compiled or not is_limited}
            while len(entries) > limit:
                [(owner, _)] = Counter(entry.owner for entry in entries.values()).most_common(1)
                oldest = min((key for key in entries if entries[key].owner == owner), key=lambda key: entries[key].used)
                del entries[oldest], others[oldest]
                self._displace(oldest)

    def _drop_large(self, new: _Entry) -> None:
        """Drop the least recently used traces of the owners with the most nodes, until ``new`` has room."""
        others = {key: entry for key, entry in self._entries.items() if entry is not new and not entry.is_permanent}
        nodes = Counter[str]()
        for entry in others.values():
            nodes[entry.owner] += entry.nodes
        while nodes.total() and nodes.total() + new.nodes > NODES_KEPT:
            [(owner, _)] = nodes.most_common(1)
            own = [key for key, entry in others.items() if entry.owner == owner and entry.nodes]
            oldest = min(own, key=lambda key: others[key].used)
            nodes[owner] -= others.pop(oldest).nodes
            self._displace(oldest)

    def _displace(self, key: TraceKey) -> None:
        del self._entries[key]
        _traced(key).pop(key, None)
        self.displaced += 1


def _traced(key: TraceKey) -> dict[TraceKey, Any]:
    """Return the traced programs that the op of a trace holds; empty if the op is gone."""
    op: object | None = key[0].op()
    found: dict[TraceKey, Any] = {} if op is None else vars(op).setdefault(_TRACED, {})
    return found


TRACES = Traces()
"""The traces of this process."""


def trace_counts() -> tuple[int, int]:
    """Return how many traces this process has made, and how many of them XLA compiled."""
    return TRACES.made.total(), TRACES.compiled.total()


class _Thread(threading.local):
    """The modes that each thread must not trace, the owner of its traces, and whether these may outlive callers."""

    forbidden: frozenset[Mode] = frozenset()
    owner = ""
    may_outlive = False


_thread = _Thread()


def forbid_tracing(modes: Iterable[Mode]) -> None:
    """Forbid this thread to trace in these modes, and allow it in all others."""
    _thread.forbidden = frozenset(modes)


def let_traces_outlive() -> None:
    """Let the traces of this thread go on when their callers have gone: it has no other work that waits."""
    _thread.may_outlive = True


def require_tracing_allowed(mode: Mode) -> None:
    """Raise ``NotTraced`` if this thread must not make a trace of this mode."""
    if mode in _thread.forbidden:
        raise NotTraced


@contextmanager
def traces_of(owner: str) -> Generator[None]:
    """Inside this block, the traces that this thread makes count for ``owner``."""
    _thread.owner = owner
    try:
        yield
    finally:
        _thread.owner = ""
