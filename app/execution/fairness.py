"""Who comes next, and who may wait: so that one op's flood starves no other op."""

from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from app.errors import Overloaded

Item = TypeVar("Item")


@dataclass
class RoundRobin(Generic[Item]):
    """A queue that serves its owners in turn, and what one of them has put in first come, first served."""

    _lines: dict[str, deque[Item]] = field(default_factory=dict[str, deque[Item]])  # in order of their turns

    def __bool__(self) -> bool:
        """Tell whether anything waits."""
        return bool(self._lines)

    def put(self, owner: str, item: Item) -> None:
        """Queue an item; an owner who had none has the last turn."""
        self._lines.setdefault(owner, deque()).append(item)

    def take(self) -> Item:
        """Return the first item of the owner whose turn it is, who then has the last turn."""
        owner = next(iter(self._lines))
        line = self._lines.pop(owner)
        item = line.popleft()
        if line:
            self._lines[owner] = line
        return item

    def remove(self, owner: str, item: Item) -> bool:
        """Take an item out, wherever it waits; tell whether it still did."""
        line = self._lines.get(owner)
        if line is None or item not in line:
            return False
        line.remove(item)
        if not line:
            del self._lines[owner]
        return True


class Admission:
    """The places of a waiting room. An owner may take one while fewer are its own than are free.

    So one owner alone fills half of them, two a third each, and there is always a place for somebody new; a fixed half
    would let two owners shut out everybody else, and a fixed part for each would leave most places empty for ever.
    """

    def __init__(self, count: int) -> None:
        """Have ``count`` places, all free."""
        self._free, self._count = count, count
        self._held: dict[str, int] = {}

    @property
    def taken(self) -> int:
        """How many are taken."""
        return self._count - self._free

    def take(self, owner: str) -> None:
        """Take a place; raises ``Overloaded`` where the owner may not."""
        own = self._held.get(owner, 0)
        if own >= self._free:
            others = self.taken - own
            raise Overloaded(f"queue full: {own} requests for {owner} and {others} for other ops; try again soon")
        self._held[owner] = own + 1
        self._free -= 1

    def give(self, owner: str) -> None:
        """Give a place back."""
        self._held[owner] -= 1
        self._free += 1
        if not self._held[owner]:
            del self._held[owner]
