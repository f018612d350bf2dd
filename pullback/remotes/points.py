"""The last point that a function was evaluated at, with everything that one request brought."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pullback.arrays import Array, name_of

Key: TypeAlias = tuple[tuple[str, tuple[int, ...], bytes], ...]


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
        for array in (*self.outputs, *(array for order in self.derivatives for array in order)):
            array.flags.writeable = False

    def values(self) -> list[Array]:
        """Return the outputs, as arrays that the caller owns."""
        return [array.copy() for array in self.outputs]


class LastPoint:
    """The last point. Threads that ask for it at a time share one request."""

    def __init__(self) -> None:
        """Start without one."""
        self._lock = threading.Lock()
        self._last: _Request | None = None

    def known(self, inputs: Sequence[Array]) -> Point | None:
        """Return the last point if it is this one, without a request."""
        last = self._last
        return None if last is None or last.at != key(inputs) else last.result()

    def get(self, inputs: Sequence[Array], request: Callable[[], Point]) -> Point:
        """Return the point, by ``request`` unless it is the last one; what ``request`` raises is raised."""
        at = key(inputs)
        with self._lock:
            last, is_new = self._last, False
            if last is None or last.at != at:
                last, is_new = _Request(at), True
                self._last = last
        if not is_new:
            return last.result() or request()
        try:
            last.point = request()
        except BaseException:
            with self._lock:
                if self._last is last:
                    self._last = None
            raise
        finally:
            last.in_progress.release()
        return last.point

    def __reduce__(self) -> tuple[Any, ...]:
        return LastPoint, ()


class _Request:
    """A request for a point, in progress until its lock is released."""

    def __init__(self, at: Key) -> None:
        """Begin."""
        self.at = at
        self.point: Point | None = None
        # Making a Future takes longer than everything else here.
        self.in_progress = threading.Lock()
        self.in_progress.acquire()

    def result(self) -> Point | None:
        """Wait for the request of another thread; ``None`` if it failed."""
        with self.in_progress:
            return self.point
