"""The linearizations of a process: a cache, bounded in bytes, of what expensive forward passes have computed."""

import re
import secrets
import threading
import time
from collections import Counter, OrderedDict
from dataclasses import dataclass, field

from app.autodiff.linearization import Linearization
from app.errors import Gone, NotFound, wrong
from ops import Op

# How long a linearization is kept after it was made or renewed, by default and at most.
KEPT_S, LONGEST_S = 600.0, 6 * 3600.0
# How long after its end the memory of one is free at the latest, if none is renewed to end sooner.
SWEPT_S = 1.0
# What each takes besides its tensors.
OVERHEAD = 1 << 14
_NAME = re.compile(r"[0-9a-f]{8}-[0-9a-f]{32}")


@dataclass(eq=False)
class Held:
    """A place for a linearization: its id, the name of the key that made it, its bytes, and when it ends.

    ``ends`` is a time of ``time.monotonic``. ``linearization`` is set once it has been computed.
    """

    id: str
    key: str
    op: Op
    ends: float
    size: int = 0
    is_gone: bool = False
    linearization: Linearization | None = field(default=None, repr=False)

    @property
    def expires_s(self) -> int:
        """In how many seconds it ends."""
        return max(0, round(self.ends - time.monotonic()))


class Linearizations:
    """Linearizations by id. Any thread may use them.

    They take at most ``limit`` bytes together. Where there is no room, the least recently used one of the key with the
    most bytes goes.
    """

    def __init__(self, limit: int) -> None:
        """Start empty; ids begin with the name of this ``process``."""
        self._limit, self.process = limit, secrets.token_hex(4)
        self._held, self._of_keys = dict[str, Held](), dict[str, OrderedDict[str, Held]]()
        self._sizes, self._lock = Counter[str](), threading.RLock()
        self._timer: threading.Timer | None = None

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._held)

    @property
    def size(self) -> int:
        """The bytes that they take."""
        return self._sizes.total()

    def begin(self, op: Op, key: str) -> Held:
        """Return a new place; it is found by its id after ``keep``."""
        return Held(f"{self.process}-{secrets.token_hex(16)}", key, op, time.monotonic() + KEPT_S)

    def reserve(self, held: Held, size: int) -> bool:
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

    def keep(self, held: Held, linearization: Linearization) -> None:
        """Keep a linearization in its place."""
        with self._lock:
            held.linearization = linearization
            self._held[held.id] = self._of_keys.setdefault(held.key, OrderedDict())[held.id] = held
            self._wake(held)

    def release(self, held: Held) -> None:
        """Give back what a place has taken that is not kept."""
        with self._lock:
            self._add(held, -held.size)
            held.is_gone = True

    def get(self, name: str, key: str) -> tuple[Held, Linearization]:
        """Return a linearization of a key; raises ``NotFound`` for that of another key, and ``Gone``."""
        with self._lock:
            held = self._held.get(name)
            if held is not None and held.key == key:
                if held.linearization is not None and held.ends > time.monotonic():
                    self._of_keys[key].move_to_end(name)
                    return held, held.linearization
                self._drop(held)
                held = None
        if held is not None or not _NAME.fullmatch(name):
            raise NotFound(f"unknown linearization {name!r}: expected an id from POST /v1/ops/{{op}}/linearize")
        raise Gone(
            f"linearization {name} has ended, was evicted, or is that of another process: linearize again, or send the "
            "inputs to the op"
        )

    def renew(self, name: str, key: str, expires_s: float) -> Held:
        """Let a linearization end later or sooner; raises as ``get``, and ``Unprocessable`` for too long a time.

        A key whose linearizations take more than half of the room may not keep them longer than by default.
        """
        with self._lock:
            held, _ = self.get(name, key)
            is_large = 2 * self._sizes[key] > self._limit
            most = KEPT_S if is_large else LONGEST_S
            if not 0 < expires_s <= most:
                expected = f"more than 0 and at most {most:g} seconds" + " with so many bytes" * is_large
                raise wrong(("expires_s",), "invalid time", expected=expected, got=f"{expires_s:g}")
            held.ends = time.monotonic() + expires_s
            self._wake(held)
            return held

    def drop(self, name: str, key: str) -> None:
        """Free a linearization; raises as ``get``."""
        with self._lock:
            self._drop(self.get(name, key)[0])

    def _victim(self, other: Held) -> Held | None:
        """Return the least recently used one of the key with the most bytes that is not the ``other``."""
        for key, _ in self._sizes.most_common():
            for held in self._of_keys.get(key, OrderedDict[str, Held]()).values():
                if held is not other:
                    return held
        return None

    def _add(self, held: Held, size: int) -> None:
        held.size += size
        self._sizes[held.key] += size
        if not self._sizes[held.key]:
            del self._sizes[held.key]

    def _drop(self, held: Held) -> None:
        """Forget a linearization; a call that uses it goes on, and keeps nothing more."""
        del self._held[held.id], self._of_keys[held.key][held.id]
        if not self._of_keys[held.key]:
            del self._of_keys[held.key]
        held.linearization = None
        self.release(held)

    def _wake(self, held: Held) -> None:
        """Free memory soon after a linearization ends, also where no request comes."""
        if self._timer is None:
            self._timer = threading.Timer(max(0.0, held.ends - time.monotonic()) + SWEPT_S, self._sweep)
            self._timer.daemon = True
            self._timer.start()

    def _sweep(self) -> None:
        with self._lock:
            self._timer, now = None, time.monotonic()
            for held in [each for each in self._held.values() if each.ends <= now]:
                self._drop(held)
            if self._held:
                self._wake(min(self._held.values(), key=lambda each: each.ends))
