"""What an op raises: ``InvalidInput`` of its own accord, ``OpFault`` where it is at fault."""


class InvalidInput(ValueError):
    """Raised by an op's ``validate``: which input is wrong, what was expected and what came."""

    def __init__(self, name: str, message: str, *, expected: str, got: str, index: tuple[int, ...] = ()) -> None:
        """Name the input (or attribute), say what is wrong with it and, where it is one element, which."""
        super().__init__(message)
        self.name, self.message, self.expected, self.got, self.index = name, message, expected, got, index


class OpFault(Exception):
    """A function of an op takes or returns what it must not: which function and slot, what was expected, what came."""

    def __init__(self, function: str, slot: str, *, expected: str, got: str) -> None:
        """Name the function at fault, and the slot of what it returned."""
        super().__init__(f"{function} is at fault, {slot}: expected {expected}, got {got}")
        self.slot, self.expected, self.got = slot, expected, got
