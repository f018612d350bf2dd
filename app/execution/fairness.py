"""Fair queueing and admission, so that requests for one op do not starve other ops."""

from collections import deque
from typing import TypeVar

from app.errors import Overloaded

Item = TypeVar("Item")


def op_of(owner: str) -> str:
    """Return the op of an owner, which is an op, or the requests for an op with one key: ``"square (key alice)"``."""
    return owner.partition(" ")[0]


class RoundRobin(dict[str, deque[Item]]):
    """A queue that serves its owners in turn, and the items of each owner in order.

    It has the items of each owner that has any, in the order of turns; so it is false when it is empty.
    """

    def put(self, owner: str, item: Item) -> None:
        """Queue an item; an owner without other items gets the last turn."""
        self.setdefault(owner, deque()).append(item)

    def take(self, owner: str) -> Item:
        """Remove and return the first item of an owner, who then gets the last turn."""
        queue = self.pop(owner)
        item = queue.popleft()
        if queue:
            self[owner] = queue
        return item

    def remove(self, owner: str, item: Item) -> bool:
        """Remove an item from any position; return whether it was still queued."""
        queue = self.get(owner, ())
        if item not in queue:
            return False
        self[owner].remove(item)
        if not queue:
            del self[owner]
        return True


class Admission:
    """The places of a queue.

    An owner without a place may take one while any is free. An owner may take a further place while it holds fewer
    places than are free, and only beyond ``spare``: as many places stay free as there are fewer owners than ``spare``.
    So

    - a single owner fills half of the places, and owners that share a full queue for long have about as many each;
    - while fewer than ``spare`` owners have places, one that has none gets one: ``spare`` is an eighth of the places.

    A fixed half for each would let two owners shut out all others; a fixed share for each would leave most places
    empty. With more owners than places, no rule has a place for every new one.
    """

    def __init__(self, count: int) -> None:
        """Start with ``count`` places, all free."""
        self._free, self._count = count, count
        self.spare = min(count, max(2, count // 8))
        self._held: dict[str, int] = {}

    @property
    def taken(self) -> int:
        """The number of places that are taken."""
        return self._count - self._free

    def take(self, owner: str) -> None:
        """Take a place; raises ``Overloaded`` if the owner may not."""
        own, reserved = self._held.get(owner, 0), self.spare - len(self._held)
        if self._free <= (max(own, reserved) if own else 0):
            others = self.taken - own
            raise Overloaded(f"queue full: {own} waiting for {owner}, {others} for others; try again soon")
        self._held[owner] = own + 1
        self._free -= 1

    def give(self, owner: str) -> None:
        """Return a place."""
        self._held[owner] -= 1
        self._free += 1
        if not self._held[owner]:
            del self._held[owner]
