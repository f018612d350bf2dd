"""How to reproduce the number of a finding."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

Index: TypeAlias = tuple[int, ...]

POINT_FILE = "@point.json"
"""How a command names the file that has its ``point``, where that is too long for a command line."""


class Reproduction(NamedTuple):
    """A command line, or why there is none, what in its answer is the number, and the tensors of its call as JSON.

    ``directions`` has the cotangent and the vectors of the number by name, such as ``dy``, where each is one number.
    """

    command: str
    shows: str | None
    point: Mapping[str, Mapping[str, Any]] | None = None
    directions: Mapping[str, float] = {}


class Reproducible(Protocol):
    """A call whose answer has a number."""

    def reproduction(self, index: Index | None, number: float) -> Reproduction:
        """Return how to reproduce the number, which has this ``index`` in the comparison."""
        ...
