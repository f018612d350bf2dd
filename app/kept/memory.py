"""What a process has in memory of what clients have left behind: values that belong to keys, bounded in bytes."""

import math
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Value = TypeVar("Value")
# How long after its end the memory of a value is free at the latest, if none is renewed to end sooner.
SWEPT_S = 1.0
# How long a use is noted in the file.
NOTED_S = 1.0


@dataclass(eq=False)
class Held(Generic[Value]):
    """A place for a value: its id, the name of the key that it belongs to, and when it ends, of ``time.monotonic``.

    ``value`` is set while it is kept, ``size`` are its bytes, and ``noted`` is when its use was last noted in a file.
    """

    id: str
    key: str
    ends: float = math.inf
    value: Value | None = field(default=None, repr=False)
    size: int = 0
    is_gone: bool = False
    noted: float = field(default_factory=time.monotonic)

    @property
    def expires_s(self) -> int:
        """In how many seconds it ends."""
        return max(0, round(self.ends - time.monotonic()))


class Memory(Generic[Value]):
    """Values by key and id. Any thread may use it.

    Together they take at most ``limit`` bytes. To make room, the least recently used one of the key that has the most
    bytes goes. Each goes when it ends, also where no request comes.
    """

    def __init__(self, limit: int) -> None:
        """Start empty."""
        self._limit, self._of_keys = limit, dict[str, OrderedDict[str, Held[Value]]]()
        self._sizes, self._lock = Counter[str](), threading.RLock()
        self._timer: threading.Timer | None = None

    def __len__(self) -> int:
        """Return how many values there are."""
        with self._lock:
            return sum(map(len, self._of_keys.values()))

    @property
    def size(self) -> int:
        """The bytes that they take."""
        return self._sizes.total()

    def find(self, name: str, key: str) -> Held[Value] | None:
        """Return what a key has under an id, as the most recently used."""
        with self._lock:
            places = self._of_keys.get(key)
            if places is None or (held := places.get(name)) is None:
                return None
            if held.ends <= time.monotonic():
                self.forget(held)
                return None
            places.move_to_end(name)
            return held

    def is_of_another(self, name: str) -> bool:
        """Return whether any key has this id."""
        with self._lock:
            return any(name in places for places in self._of_keys.values())

    def reserve(self, held: Held[Value], size: int) -> bool:
        """Take bytes for a place, negative ones back; return whether there was room."""
        with self._lock:
            if held.is_gone or held.size + size > self._limit:
                return False
            while size > 0 and self._sizes.total() + size > self._limit:
                victim = self._victim(held)
                if victim is None:
                    return False
                self.forget(victim)
            self._add(held, size)
            return True

    def release(self, held: Held[Value]) -> None:
        """Give back what a place has taken that is not kept."""
        with self._lock:
            self._add(held, -held.size)
            held.is_gone = True

    def keep(self, held: Held[Value], value: Value) -> None:
        """Keep a value in its place, so that it is found by its key and id."""
        with self._lock:
            held.value = value
            self._of_keys.setdefault(held.key, OrderedDict())[held.id] = held
            self._wake(held)

    def forget(self, held: Held[Value]) -> None:
        """Forget a value; whoever uses it goes on, and keeps nothing more."""
        with self._lock:
            held.value = None
            del self._of_keys[held.key][held.id]
            if not self._of_keys[held.key]:
                del self._of_keys[held.key]
            self.release(held)

    def _victim(self, other: Held[Value]) -> Held[Value] | None:
        """Return the least recently used one of the key with the most bytes that is not the ``other``."""
        for key, _ in self._sizes.most_common():
            for held in self._of_keys.get(key, OrderedDict[str, Held[Value]]()).values():
                if held is not other:
                    return held
        return None

    def _add(self, held: Held[Value], size: int) -> None:
        held.size += size
        self._sizes[held.key] += size
        if not self._sizes[held.key]:
            del self._sizes[held.key]

    def _wake(self, held: Held[Value]) -> None:
        """Free memory soon after a value ends."""
        if self._timer is None and held.ends < math.inf:
            self._timer = threading.Timer(max(0.0, held.ends - time.monotonic()) + SWEPT_S, self._sweep)
            self._timer.daemon = True
            self._timer.start()

    def _sweep(self) -> None:
        with self._lock:
            self._timer, now = None, time.monotonic()
            every = [held for places in self._of_keys.values() for held in places.values()]
            for held in every:
                if held.ends <= now:
                    self.forget(held)
            if left := [held for held in every if not held.is_gone]:
                self._wake(min(left, key=lambda each: each.ends))


class Recent(Memory[Value]):
    """What a process has read of a folder, by the names of the files: the values that were used last."""

    def __init__(self, use: Callable[[str], bool], limit: int) -> None:
        """Start empty. ``use`` notes the use of a file, and returns whether it is still there; it may block."""
        super().__init__(limit)
        self._use, self._used, self._is_noting = use, dict[str, None](), False

    def known(self, name: str) -> Value | None:
        """Return a value that this process has, and note its use; it never blocks.

        If another process has removed the file, that becomes known within seconds.
        """
        with self._lock:
            held, now = self.find(name, ""), time.monotonic()
            if held is None:
                return None
            if now - held.noted > NOTED_S:
                held.noted = now
                self._note(name)
            return held.value

    def has(self, name: str, value: Value) -> bool:
        """Return whether this process has this value, without using it."""
        held = self._of_keys.get("", OrderedDict[str, Held[Value]]()).get(name)
        return held is not None and held.value is value

    def add(self, name: str, value: Value, size: int = 1) -> Value:
        """Keep a value of no more than the limit; return that which another thread has kept meanwhile, if one has."""
        with self._lock:
            held = self.find(name, "") or Held[Value](name, "")
            if held.value is None and self.reserve(held, size):
                self.keep(held, value)
            return value if held.value is None else held.value

    def _note(self, name: str) -> None:
        """Note a use soon, on a thread: a file system may take long, or never answer."""
        self._used[name] = None
        if not self._is_noting:
            self._is_noting = True
            threading.Thread(target=self._write, name="uses", daemon=True).start()

    def _write(self) -> None:
        """Note the uses that there are; the thread ends when none is left."""
        while True:
            with self._lock:
                if not self._used:
                    self._is_noting = False
                    return
                name = next(iter(self._used))
                del self._used[name]
            if not self._use(name):
                with self._lock:
                    if (held := self.find(name, "")) is not None:
                        self.forget(held)
