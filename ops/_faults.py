"""The errors of an op: ``InvalidInput``, raised by the op itself, and ``OpFault``, for a mistake in it."""


class InvalidInput(ValueError):
    """Raised by an op's ``validate``: the wrong input, the expected value and the one it got."""

    def __init__(self, name: str, message: str, *, expected: str, got: str, index: tuple[int, ...] = ()) -> None:
        """Name the input or attribute, state the error and, if it is in one element, the index."""
        super().__init__(message)
        self.name, self.message, self.expected, self.got, self.index = name, message, expected, got, index


class OpFault(Exception):
    """A function of an op has wrong arguments or results: the function, the slot, the expected value and the actual."""

    def __init__(self, function: str, slot: str, *, expected: str, got: str, message: str = "") -> None:
        """Name the function and the slot; ``message`` says what is wrong, by default the value for the slot."""
        message = message or f"returned a wrong value for {slot}"
        super().__init__(f"{function} {message}: expected {expected}, got {got}")
        self.slot, self.expected, self.got = slot, expected, got
