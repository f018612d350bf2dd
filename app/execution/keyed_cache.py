"""A cache for things that belong to keys, bounded in bytes."""

import threading
from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import Generic, TypeVar


@dataclass(eq=False)
class Held:
    """A place for a thing: its id, the name of the key that it belongs to, and the bytes that it takes."""

    id: str
    key: str
    size: int = 0
    is_gone: bool = False


Place = TypeVar("Place", bound=Held)


class KeyedCache(Generic[Place]):
    """Things by key and id. Any thread may use it.

    Together they take at most ``limit`` bytes. To make room, the cache drops the least recently used one of the key
    that has the most bytes.
    """

    def __init__(self, limit: int) -> None:
        """Start empty."""
        self._limit, self._of_keys = limit, dict[str, OrderedDict[str, Place]]()
        self._sizes, self._lock = Counter[str](), threading.RLock()

    def __len__(self) -> int:
        """Return how many there are."""
        with self._lock:
            return sum(map(len, self._of_keys.values()))

    @property
    def size(self) -> int:
        """The bytes that they take."""
        return self._sizes.total()

    def reserve(self, held: Place, size: int) -> bool:
        """Take bytes for a place, negative ones back; return whether there was room."""
        with self._lock:
            if held.is_gone or held.size + size > self._limit:
                return False
            while size > 0 and self._sizes.total() + size > self._limit:
                victim = self._victim(held)
                if victim is None:
                    return False
                self._drop(victim)
            self._add(held, size)
            return True

    def release(self, held: Place) -> None:
        """Give back what a place has taken that is not kept."""
        with self._lock:
            self._add(held, -held.size)
            held.is_gone = True

    def _keep(self, held: Place) -> None:
        """Keep a place, so that it is found by its key and id."""
        self._of_keys.setdefault(held.key, OrderedDict())[held.id] = held

    def _used(self, name: str, key: str) -> Place | None:
        """Return what a key has under an id, as the most recently used."""
        places = self._of_keys.get(key, OrderedDict[str, Place]())
        if name in places:
            places.move_to_end(name)
        return places.get(name)

    def _is_of_another(self, name: str) -> bool:
        """Return whether any key has this id."""
        return any(name in places for places in self._of_keys.values())

    def _places(self) -> list[Place]:
        return [held for places in self._of_keys.values() for held in places.values()]

    def _victim(self, other: Place) -> Place | None:
        """Return the least recently used one of the key with the most bytes that is not the ``other``."""
        for key, _ in self._sizes.most_common():
            for held in self._of_keys.get(key, OrderedDict[str, Place]()).values():
                if held is not other:
                    return held
        return None

    def _add(self, held: Place, size: int) -> None:
        held.size += size
        self._sizes[held.key] += size
        if not self._sizes[held.key]:
            del self._sizes[held.key]

    def _drop(self, held: Place) -> None:
        """Forget a place."""
        del self._of_keys[held.key][held.id]
        if not self._of_keys[held.key]:
            del self._of_keys[held.key]
        self.release(held)
