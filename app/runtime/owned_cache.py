"""A cache whose entries are held by their owners: an op that is gone leaves nothing behind."""

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
_HELD = "_cached"


class OwnedCache(Generic[Key, Value]):
    """At most ``limit`` values, by their owner and a key; the oldest goes first, and all of an owner go with it.

    An owner is an object with attributes, equal only to itself. Neither keys nor the cache refer to it.
    """

    def __init__(self, limit: int) -> None:
        """Start empty."""
        self.limit, self._lock = limit, threading.Lock()
        self._entries = OrderedDict[tuple[weakref.ref[Any], Key], None]()

    def __len__(self) -> int:
        """Return the number of values, some of whose owners may be gone."""
        return len(self._entries)

    def get(self, owner: Any, key: Key) -> Value | None:
        """Return a value, ``None`` if there is none."""
        values = _held_by(owner).get(self)
        return None if values is None else values.get(key)

    def keep(self, owner: Any, key: Key, value: Value) -> Value:
        """Keep a value; return it, or that which another thread has kept meanwhile."""
        with self._lock:
            values: dict[Key, Value] = _held_by(owner).setdefault(self, {})
            if key not in values:
                values[key] = value
                self._entries[weakref.ref(owner), key] = None
            while len(self._entries) > self.limit:
                (reference, oldest), _ = self._entries.popitem(last=False)
                if (other := reference()) is not None:
                    del _held_by(other)[self][oldest]
            return values.get(key, value)

    def drop(self, condition: Callable[[Value], bool]) -> None:
        """Drop the values that meet a condition."""
        with self._lock:
            for reference, key in [*self._entries]:
                values = {} if (owner := reference()) is None else _held_by(owner)[self]
                if key in values and condition(values[key]):
                    del values[key], self._entries[reference, key]

    def values(self) -> list[Value]:
        """Return the values, the oldest first."""
        with self._lock:
            owned = [(reference(), key) for reference, key in self._entries]
        found = [self.get(owner, key) for owner, key in owned if owner is not None]
        return [value for value in found if value is not None]


def _held_by(owner: object) -> dict[OwnedCache[Any, Any], dict[Any, Any]]:
    """Return the values that an owner holds, by their cache."""
    held: dict[OwnedCache[Any, Any], dict[Any, Any]] = vars(owner).setdefault(_HELD, {})
    return held
