"""The cache of traces in this process.

A program is traced once per mode, dtypes and device, for all shapes (with XLA, once per shape). The cache is bounded:
the least recently used trace of the owner with the most of them is dropped for a new one, so that no owner displaces
the traces of another. An owner is an op, or the requests for an op with one key. Dropping a trace frees its memory,
except the executables that XLA compiles for a function: TensorFlow keeps these for the life of the process. They are
few, and the others run in sessions, whose executables end with them.
"""

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Generator, Hashable, Iterable
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ops import Mode

# A trace takes about 0.25 MB; one that XLA compiles 0.75 MB (measured for ops of some twenty kernels).
TRACES_KEPT, COMPILED_KEPT = 2048, 512
# The executables that may stay for the life of the process, and the share of them that one op may have.
PERMANENT, SHARE = 512, 0.5


class NotTraced(Exception):
    """A trace is missing, and this thread must not wait until it is made."""


@dataclass(eq=False)
class _Entry:
    """A trace, or its error, and when it was last used."""

    owner: str
    is_compiled: bool
    is_permanent: bool
    used: int
    future: Future[Any] = field(default_factory=Future[Any])
    trace: Any = None


class Traces:
    """Traces by key. A failed trace keeps its error as its value, until it is displaced.

    ``made`` and ``compiled`` count the traces since the start by owner, and ``displaced`` those that were dropped.
    """

    def __init__(self) -> None:
        """Create an empty cache."""
        self.made: Counter[str] = Counter()
        self.compiled: Counter[str] = Counter()
        self.displaced = 0
        self._permanent: Counter[str] = Counter()
        self._entries: dict[Hashable, _Entry] = {}
        self._clock = itertools.count(1)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return the number of traces in the cache."""
        return len(self._entries)

    def get(self, key: Hashable) -> Any:
        """Return the trace for a key, ``None`` if there is none or it is not complete; raise its error if it failed."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        entry.used = next(self._clock)
        return entry.trace if entry.trace is not None or not entry.future.done() else entry.future.result()

    def make(
        self, key: Hashable, owner: str, trace: Callable[[], Any], *, is_compiled: bool, is_permanent: bool = False
    ) -> Any:
        """Return the result of ``trace()`` for this key, which is called once; later calls return the same result.

        The trace counts for ``owner``, an op, outside of ``traces_of``. ``is_permanent``: the memory stays when the
        trace is dropped, so it never is. Raises whatever ``trace()`` raised.
        """
        owner = _thread.owner or owner
        with self._lock:
            entry = self._entries.get(key)
            is_first = entry is None
            if entry is None:
                entry = self._entries[key] = _Entry(owner, is_compiled, is_permanent, next(self._clock))
                self.made[owner] += 1
                self.compiled[owner] += is_compiled
                self._permanent[owner] += is_permanent
                self._drop_some(entry)
        if is_first:
            try:
                entry.trace = result = trace()
                entry.future.set_result(result)
            except BaseException as error:  # noqa: BLE001 - the op author's code may raise anything
                # The traceback would keep the tensors of the first request alive.
                entry.future.set_exception(error.with_traceback(None))
        return entry.future.result()

    def may_be_permanent(self, owner: str) -> bool:
        """Return whether another executable of an owner may stay for the life of the process."""
        owner = _thread.owner or owner
        return self._permanent[owner] < PERMANENT * SHARE and self._permanent.total() < PERMANENT

    def _drop_some(self, new: _Entry) -> None:
        """Drop the least recently used traces of the owners with the most, until the rest leaves room for ``new``."""
        others = {key: entry for key, entry in self._entries.items() if entry is not new and not entry.is_permanent}
        for limit, is_limited in ((TRACES_KEPT - 1, False), (COMPILED_KEPT - new.is_compiled, True)):
            entries = {key: entry for key, entry in others.items() if entry.is_compiled or not is_limited}
            while len(entries) > limit:
                [(owner, _)] = Counter(entry.owner for entry in entries.values()).most_common(1)
                oldest = min((key for key in entries if entries[key].owner == owner), key=lambda key: entries[key].used)
                del entries[oldest], others[oldest], self._entries[oldest]
                self.displaced += 1


TRACES = Traces()
"""The traces of this process."""


def trace_counts() -> tuple[int, int]:
    """Return how many traces this process has made, and how many of them XLA compiled."""
    return TRACES.made.total(), TRACES.compiled.total()


class _Thread(threading.local):
    """The modes that each thread must not trace, and the owner for which its traces count."""

    forbidden: frozenset[Mode] = frozenset()
    owner = ""


_thread = _Thread()


def forbid_tracing(modes: Iterable[Mode]) -> None:
    """Forbid this thread to trace in these modes, and allow it in all others."""
    _thread.forbidden = frozenset(modes)


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
