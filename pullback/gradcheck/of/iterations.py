"""Whether a function iterates until its numbers settle: the derivative of a solver is right to its tolerance alone."""

import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


def iterates(call: Callable[[T], Any], points: Sequence[T]) -> bool:
    """Return whether a function calls others more often at some points than at others, and as often when repeated."""
    counts = [(_calls(call, point), _calls(call, point)) for point in points]
    return all(once == again for once, again in counts) and len({*counts}) > 1


def _calls(call: Callable[[T], Any], point: T) -> int:
    """Return how many functions of Python and of C a call calls, on this thread."""
    count, before = 0, sys.getprofile()

    def seen(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(seen)
    try:
        call(point)
    finally:
        sys.setprofile(before)
    return count
