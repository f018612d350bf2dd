"""How to reproduce the number of a finding."""

from typing import NamedTuple, Protocol, TypeAlias

Index: TypeAlias = tuple[int, ...]


class Reproduction(NamedTuple):
    """A command line, or why there is none, and what in its answer is the number."""

    command: str
    shows: str | None


class Reproducible(Protocol):
    """A call whose answer has a number."""

    def reproduction(self, index: Index | None, number: float) -> Reproduction:
        """Return how to reproduce the number, which has this ``index`` in the comparison."""
        ...
