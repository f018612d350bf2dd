"""The functions that a framework calls."""

from typing import Any

from pullback.remotes.derivatives import Derivative


class Function:
    """An op as a function of a framework, which adds ``__call__``.

    A copy made by pickle is the same function in the same process. In another process it has the key, the user name and
    the password of the environment there: none of them is saved, nor are headers.
    """

    def __init__(self, p: Derivative) -> None:
        """Set the op; frameworks look for a name."""
        self.p = p
        self.__name__ = self.__qualname__ = p.remote.name

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.p,)

    def __repr__(self) -> str:
        return f"{type(self).__module__}.remote: {self.p.remote!r}"
