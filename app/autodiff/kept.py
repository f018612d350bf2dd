"""What follows from an op and is computed once: the op keeps it, so that it goes with the op."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from ops import Op

Result = TypeVar("Result")
_KEPT = "_kept"


class Kept(Generic[Result]):
    """A function of an op whose result the op keeps. Threads that call it together may compute it more than once."""

    def __init__(self, function: Callable[[Op], Result]) -> None:
        """Take the function; this works as a decorator."""
        self._function = function

    def __call__(self, op: Op) -> Result:
        """Return the result for an op."""
        kept: dict[Kept[Any], Any] = vars(op).setdefault(_KEPT, {})
        if self not in kept:
            kept[self] = self._function(op)
        return kept[self]

    def is_known(self, op: Op) -> bool:
        """Return whether the result has been computed."""
        return self in vars(op).get(_KEPT, {})
