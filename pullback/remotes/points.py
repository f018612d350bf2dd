"""The points where a function was evaluated, each with all results of one request."""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from pullback.arrays import name_of
from pullback.dtypes import Array
from pullback.limits import Limit

Key: TypeAlias = tuple[tuple[str, tuple[int, ...], bytes], ...]

MAX_BYTES = 256 << 20
"""How many bytes the points of a function may have in all, beside the last point."""
MAX_POINTS = 4096

_lock = threading.RLock()
"""Guards all memories, while one of them looks a point up or stores one: never during a request."""
# A child of a fork has only the thread that forked. If another thread held the lock then, it would stay locked in the
# child for good. So a fork waits for the lock, as it does for that of ``logging``, and both processes release it.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def key(arrays: Sequence[Array]) -> Key:
    """Return what makes two points the same: dtypes, shapes and all bytes. An id or a hash could be that of another."""
    return tuple((name_of(array.dtype), array.shape, array.tobytes()) for array in arrays)


@dataclass(frozen=True)
class Point:
    """The outputs at a point, and their derivatives of order 1, 2, ...; none of the arrays can be written to."""

    outputs: tuple[Array, ...]
    derivatives: tuple[tuple[Array, ...], ...]

    def __post_init__(self) -> None:
        """Protect the arrays, since several answers are made from them."""
        for array in self._arrays:
            array.flags.writeable = False

    def values(self) -> list[Array]:
        """Return the outputs, as arrays that the caller owns."""
        return [array.copy() for array in self.outputs]

    @cached_property
    def size(self) -> int:
        """The number of bytes of all arrays."""
        return sum(array.nbytes for array in self._arrays)

    @property
    def _arrays(self) -> list[Array]:
        return [*self.outputs, *(array for order in self.derivatives for array in order)]


class Points:
    """The points that were used last, and the requests for points. Threads that ask for a point share one request."""

    def __init__(self) -> None:
        """Start without any."""
        self._points: OrderedDict[Key, Point] = OrderedDict()
        self._requests: dict[Key, _Request] = {}
        self._size = 0

    def known(self, inputs: Sequence[Array], limit: Limit) -> Point | None:
        """Return a point that is stored or being requested, else ``None``; this sends nothing."""
        if not self._points and not self._requests:
            return None  # a key takes a copy of the arrays
        at = key(inputs)
        with _lock:
            point, request = self._recalled(at), self._current(at)
        return request.result(limit) if point is None and request is not None else point

    def get(self, inputs: Sequence[Array], request: Callable[[], Point], limit: Limit) -> Point:
        """Return a point that is stored or being requested, else the result of ``request``, or raise its error."""
        at, mine = key(inputs), _Request()
        try:
            with _lock:
                point = self._recalled(at)
                if point is not None:
                    return point
                current = self._current(at)
                if current is None:
                    current = self._requests[at] = mine
            point = None if current is mine else current.result(limit)
            if point is None:
                point = mine.point = request()
                with _lock:
                    self._keep(at, point)
            return point
        finally:
            with _lock:
                if self._requests.get(at) is mine:
                    del self._requests[at]
            mine.in_progress.release()

    def _recalled(self, at: Key) -> Point | None:
        point = self._points.get(at)
        if point is not None:
            self._points.move_to_end(at)
        return point

    def _current(self, at: Key) -> "_Request | None":
        """Return the request in progress; after a fork, the thread that waits for it is only in the parent."""
        request = self._requests.get(at)
        return request if request is not None and request.process == os.getpid() else None

    def _keep(self, at: Key, point: Point) -> None:
        """Store a point, and drop the least recently used ones beyond the limits."""
        if at in self._points:
            return
        self._points[at] = point
        self._size += _size(at, point)
        while len(self._points) > 1 and (self._size > MAX_BYTES or len(self._points) > MAX_POINTS):
            self._size -= _size(*self._points.popitem(last=False))


class _Request:
    """A request for a point, in progress until its lock is released."""

    def __init__(self) -> None:
        """Begin."""
        self.point: Point | None = None
        self.process = os.getpid()
        # Making a Future takes longer than everything else here.
        self.in_progress = threading.Lock()
        self.in_progress.acquire()

    def result(self, limit: Limit) -> Point | None:
        """Wait for the request of another thread; ``None`` if it failed, or if the time is up."""
        seconds = -1 if limit.left is None else min(limit.left, threading.TIMEOUT_MAX)
        if self.in_progress.acquire(timeout=seconds):
            self.in_progress.release()
        return self.point


def _size(at: Key, point: Point) -> int:
    return point.size + sum(len(content) for _, _, content in at)
