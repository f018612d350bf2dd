"""The cache of traces in this process.

A program is traced once per mode, dtypes and device, for all shapes (with XLA, once per shape). The cache is bounded:
the least recently used trace of the owner with the most of them is dropped for a new one, so that no owner displaces
the traces of another. Their nodes and the sessions in which XLA compiles them are bounded in the same way. An owner is
an op, or the requests for an op with one key. Dropping a trace frees its memory; the executables and the threads of a
session end with it, so its traces are dropped together. They are those of one owner. Programs of few shapes, which most
requests need, are never dropped, and so bounded in number: all owners share their sessions.

A trace whose caller no longer waits stops. That of an op which is no composition goes on in the background instead, for
a bounded time, so that the first request pays for the next ones. Requests that need it meanwhile get 503 with
``Retry-After``. It stops between two nodes; until it makes the next one, nothing can stop it.
"""

import itertools
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import wait
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias, get_args

from app.errors import DeadlinePassed, Overloaded, Postponed, PullbackError, too_late
from app.runtime import cancellation
from app.runtime.trace_entry import BACKGROUND_S, Entry, TraceKey, XlaSession, traced
from app.runtime.trace_limits import TooManyNodes
from app.runtime.trace_room import TraceRoom
from ops import Mode

# The share that one op may have of the executables that stay for the life of the process.
SHARE = 0.5
# How many traces may go on without a caller, one for each owner. Requests that need one that took too long are refused
# for ``REFUSED_S``. One that makes no node for ``IDLE_S`` leaves its place to others.
BACKGROUND, REFUSED_S, IDLE_S = 2, 600.0, 30.0
# How often a thread that waits for a trace looks whether it goes on.
LOOK_S = 0.25

Stop: TypeAlias = Literal["deadline", "time", "nodes"]
STOPS: tuple[Stop, ...] = get_args(Stop)
WhyOver: TypeAlias = Callable[[], PullbackError | None]
"""Returns the error with which a trace must stop, ``None`` while it may go on."""
Make: TypeAlias = Callable[[WhyOver, Callable[[], XlaSession]], Any]
"""Makes a trace; the second argument returns the session for what XLA compiles."""


log = logging.getLogger("pullback")


class NotTraced(Postponed):
    """A trace is missing, and this thread must not wait until it is made."""


class Traces:
    """Traces by key, which begins with the reference to a program.

    A failed trace keeps its error as its value, until it is displaced. A trace goes with its program.

    ``made`` and ``compiled`` count the traces since the start by owner, ``stopped`` those that were stopped, by what
    they had too little of.
    """

    def __init__(self) -> None:
        """Create an empty cache."""
        self.made: Counter[str] = Counter()
        self.compiled: Counter[str] = Counter()
        self.stopped: Counter[Stop] = Counter()
        self._permanent: Counter[str] = Counter()
        self._entries: dict[TraceKey, Entry] = {}
        self.room = TraceRoom(self._entries)
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
        trace: Make,
        *,
        is_compiled: bool,
        is_permanent: bool = False,
        may_outlive: bool = False,
    ) -> Any:
        """Return the result of ``trace`` for this key, which is called once; later calls return the same.

        The trace counts for ``op``, outside of ``traces_of``. One that ``is_permanent`` is never dropped. If it
        ``may_outlive`` its caller, and this thread may trace in the background, it goes on when the caller has gone.
        Raises whatever ``trace`` raised, ``DeadlinePassed`` when the caller has gone, and ``Overloaded`` as ``get``.
        """
        owner, block = _thread.owner or op, cancellation.current()
        while True:
            with self._lock:
                entry = self._entries.get(key)
                is_first = entry is None
                if entry is None:
                    used, outlives = next(self._clock), may_outlive and _thread.may_outlive
                    entry = self._entries[key] = Entry(op, owner, is_compiled, is_permanent, used, block, outlives)
                    traced(key)[key] = key[0].program()
                    self.made[owner] += 1
                    self.compiled[owner] += is_compiled
                    self._permanent[owner] += is_permanent
                    self.room.make_for(entry)
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

    def _run(self, key: TraceKey, entry: Entry, trace: Make) -> Any:
        """Make a trace on this thread; keep it, or its error, unless it was abandoned."""

        def why_over() -> PullbackError | None:
            if not entry.block.is_over:
                return None
            if not self._goes_on(entry):
                return too_late()
            entry.active = time.monotonic()
            return None if time.monotonic() < entry.began + BACKGROUND_S else entry.refusal()

        def session() -> XlaSession:
            with self._lock:
                return self.room.session_for(entry)

        try:
            entry.trace = result = trace(why_over, session)
            entry.nodes = getattr(result, "nodes", 0)
            with self._lock:
                self.room.drop_large(entry)
        except BaseException as error:  # noqa: BLE001 - the op author's code may raise anything
            self._count(error, key, entry)
            # The traceback would keep the tensors of the first request alive.
            entry.future.set_exception(error.with_traceback(None))
        else:
            entry.future.set_result(result)
            if entry.is_in_background:
                log.info("op %s: traced in the background in %.0f s", entry.op, time.monotonic() - entry.began)
        return entry.result()

    def _count(self, error: BaseException, key: TraceKey, entry: Entry) -> None:
        """Count a trace that was stopped, and decide when it is tried again."""
        match error:
            case DeadlinePassed():
                self.stopped["deadline"] += 1
                self._forget(key, entry)
            case Postponed():
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

    def _background(self) -> list[Entry]:
        return [each for each in list(self._entries.values()) if each.is_in_background and not each.future.done()]

    def _goes_on(self, entry: Entry) -> bool:
        """Return whether a trace goes on without its caller; it may, unless too many do."""
        if entry.is_in_background or not (entry.may_outlive and entry.block.is_over):
            return entry.is_in_background
        with self._lock:
            if self.in_background >= BACKGROUND or any(each.owner == entry.owner for each in self._background()):
                return False
            entry.is_in_background, entry.active = True, time.monotonic()
        log.warning("op %s: a trace takes longer than its caller waits, and goes on in the background", entry.op)
        return True

    def _forget(self, key: TraceKey, entry: Entry) -> None:
        """Drop an entry without a trace, so that it is tried again."""
        with self._lock:
            if self._entries.get(key) is entry:
                del self._entries[key]
                traced(key).pop(key, None)
                self._permanent[entry.owner] -= entry.is_permanent

    def may_be_permanent(self, owner: str) -> bool:
        """Return whether another executable of an owner may stay for the life of the process."""
        owner, most = _thread.owner or owner, self.room.most_permanent
        return self._permanent[owner] < most * SHARE and self._permanent.total() < most


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
