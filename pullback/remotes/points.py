"""The last point that a function was evaluated at, with everything that one request brought."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

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

    @cached_property
    def is_finite(self) -> bool:
        """Whether no derivative is NaN or infinite. A product with such a number is not that of the op."""
        return all(bool(np.isfinite(array).all()) for order in self.derivatives for array in order)


class LastPoint:
    """The last point. Threads that ask for it at a time share one request."""

    def __init__(self) -> None:
        """Start without one."""
        self._lock = threading.Lock()
        self._last: tuple[Key, Future[Point]] | None = None

    def known(self, at: Key) -> Point | None:
        """Return the last point if it is this one, without a request."""
        last = self._last
        if last is None or last[0] != at:
            return None
        return _result(last[1])

    def get(self, at: Key, request: Callable[[], Point]) -> Point:
        """Return the point, by ``request`` unless it is the last one; what ``request`` raises is raised."""
        with self._lock:
            last, is_new = self._last, False
            if last is None or last[0] != at:
                last, is_new = (at, Future[Point]()), True
                self._last = last
        if not is_new:
            return _result(last[1]) or request()
        try:
            point = request()
        except BaseException:
            with self._lock:
                if self._last is last:
                    self._last = None
            last[1].cancel()
            raise
        last[1].set_result(point)
        return point

    def __reduce__(self) -> tuple[Any, ...]:
        return LastPoint, ()


def _result(future: Future[Point]) -> Point | None:
    """Wait for the request of another thread; ``None`` if it failed."""
    try:
        return future.result()
    except CancelledError:
        return None
