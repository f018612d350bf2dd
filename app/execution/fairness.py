"""Fair queueing and admission, so that requests for one op do not starve other ops."""

from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from app.errors import Overloaded

Item = TypeVar("Item")


@dataclass
class RoundRobin(Generic[Item]):
    """A queue that serves its owners in turn, and the items of each owner in order."""

    _queues: dict[str, deque[Item]] = field(default_factory=dict[str, deque[Item]])  # in the order of turns

    def __bool__(self) -> bool:
        """Return whether the queue has items."""
        return bool(self._queues)

    def put(self, owner: str, item: Item) -> None:
        """Queue an item; an owner without other items gets the last turn."""
        self._queues.setdefault(owner, deque()).append(item)

    def take(self) -> Item:
        """Remove and return the first item of the owner whose turn it is, who then gets the last turn."""
        owner = next(iter(self._queues))
        queue = self._queues.pop(owner)
        item = queue.popleft()
        if queue:
            self._queues[owner] = queue
        return item

    def remove(self, owner: str, item: Item) -> bool:
        """Remove an item from any position; return whether it was still queued."""
        queue = self._queues.get(owner)
        if queue is None or item not in queue:
            return False
        queue.remove(item)
        if not queue:
            del self._queues[owner]
        return True


class Admission:
    """The places of a queue. An owner may take one while it holds fewer places than are free.

    So a single owner fills half of them, two owners a third each, and there is always a place for a new owner. A fixed
    half for each would let two owners shut out all others; a fixed share for each would leave most places empty.
    """

    def __init__(self, count: int) -> None:
        """Start with ``count`` places, all free."""
        self._free, self._count = count, count
        self._held: dict[str, int] = {}

    @property
    def taken(self) -> int:
        """The number of places that are taken."""
        return self._count - self._free

    def take(self, owner: str) -> None:
        """Take a place; raises ``Overloaded`` if the owner may not."""
        own = self._held.get(owner, 0)
        if own >= self._free:
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
