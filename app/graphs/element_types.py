"""The dtypes of a graph: those of its nodes, made equal where a value of one is an input of another.

Each node has its type variable. Those that no fixed dtype determines are one type variable, that of the graph.
"""

from collections.abc import Callable
from typing import TypeAlias


class Variable:
    """The type variable of a node, and the dtypes that it may stand for, the default first."""

    def __init__(self, dtypes: tuple[str, ...]) -> None:
        """Take the dtypes."""
        self.dtypes = dtypes
        self._same_as: Variable | None = None

    @property
    def root(self) -> "Variable":
        """The variable that this one was made equal to."""
        found = self
        while found._same_as is not None:
            found = found._same_as
        return found

    def merge(self, other: "Variable") -> bool:
        """Make two variables equal; return whether they have a dtype in common."""
        one, two = self.root, other.root
        if one is not two:
            two._same_as, one.dtypes = one, tuple(dtype for dtype in one.dtypes if dtype in two.dtypes)
        return bool(one.dtypes)

    def restrict(self, accepts: Callable[[str], bool]) -> bool:
        """Keep the dtypes that are accepted; return whether there are any."""
        self.root.dtypes = tuple(dtype for dtype in self.root.dtypes if accepts(dtype))
        return bool(self.root.dtypes)


ElementType: TypeAlias = str | Variable


def dtypes_of(kind: ElementType) -> tuple[str, ...]:
    """Return the dtypes that a value may have."""
    return (kind,) if isinstance(kind, str) else kind.root.dtypes


def unify(one: ElementType, other: ElementType) -> bool:
    """Make two element types equal; return whether they can be."""
    if isinstance(one, Variable):
        if isinstance(other, Variable):
            return one.merge(other)
        return one.restrict(lambda dtype: dtype == other)
    if isinstance(other, Variable):
        return other.restrict(lambda dtype: dtype == one)
    return one == other
