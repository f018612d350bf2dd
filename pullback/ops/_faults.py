"""The errors of an op: ``InvalidInput``, raised by the op itself, and ``OpFault``, for a mistake in it."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any


class InvalidInput(ValueError):
    """Raised by an op's ``validate``: the wrong input, the expected value and the one it got."""

    def __init__(self, name: str, message: str, *, expected: str, got: str, index: tuple[int, ...] = ()) -> None:
        """Name the input or attribute, state the error and, if it is in one element, the index."""
        super().__init__(message)
        self.name, self.message, self.expected, self.got, self.index = name, message, expected, got, index


class OpFault(Exception):
    """A function of an op has wrong arguments or results: the function, the slot, the expected value and the actual."""

    def __init__(
        self, function: str, slot: str, *, expected: str, got: str, message: str = "", where: str = ""
    ) -> None:
        """Name the function and the slot; ``message`` says what is wrong, by default the value for the slot.

        ``where`` is the author's function, as ``located`` returns it.
        """
        message = message or f"returned a wrong value for {slot}"
        super().__init__(f"{function} {message}: expected {expected}, got {got}")
        self.slot, self.expected, self.got, self.where = slot, expected, got, where
        self._function, self._message = function, message

    def within(self, what: str) -> "OpFault":
        """Return the fault as one of a part of the op, which ``what`` names."""
        more: dict[str, str] = {"message": self._message, "where": self.where}
        return OpFault(f"{what}: {self._function}", self.slot, expected=self.expected, got=self.got, **more)


def located(function: Callable[..., Any]) -> str:
    """Return an author's function with its file and line, ``vjp in my_ops/cube.py:12``; "" for a function of ours."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    path = Path(code.co_filename) if code else Path("_")
    if code is None or (path.parent == Path(__file__).parent):
        return ""
    return f"{code.co_name} in {path.parent.name}/{path.name}:{code.co_firstlineno}"
