"""The linearizations of a process: a cache, bounded in bytes, of what expensive forward passes have computed."""

import re
import secrets
import threading
import time
from dataclasses import dataclass, field

from app.autodiff.linearization import Linearization
from app.errors import Gone, NotFound, wrong
from app.execution import keyed_cache
from app.execution.keyed_cache import KeyedCache
from ops import Op

# How long a linearization is kept after it was made or renewed, by default and at most.
KEPT_S, LONGEST_S = 600.0, 6 * 3600.0
# How long after its end the memory of one is free at the latest, if none is renewed to end sooner.
SWEPT_S = 1.0
# What each takes besides its tensors.
OVERHEAD = 1 << 14
_NAME = re.compile(r"[0-9a-f]{8}-[0-9a-f]{32}")


@dataclass(eq=False, kw_only=True)
class Held(keyed_cache.Held):
    """A place for a linearization: its op, and when it ends.

    ``ends`` is a time of ``time.monotonic``. ``linearization`` is set once it has been computed.
    """

    op: Op
    ends: float
    linearization: Linearization | None = field(default=None, repr=False)

    @property
    def expires_s(self) -> int:
        """In how many seconds it ends."""
        return max(0, round(self.ends - time.monotonic()))


class Linearizations(KeyedCache[Held]):
    """Linearizations by id, each for the time that it is kept."""

    def __init__(self, limit: int) -> None:
        """Start empty; ids begin with the name of this ``process``."""
        super().__init__(limit)
        self.process = secrets.token_hex(4)
        self._timer: threading.Timer | None = None

    def begin(self, op: Op, key: str) -> Held:
        """Return a new place; it is found by its id after ``keep``."""
        return Held(id=f"{self.process}-{secrets.token_hex(16)}", key=key, op=op, ends=time.monotonic() + KEPT_S)

    def keep(self, held: Held, linearization: Linearization) -> None:
        """Keep a linearization in its place."""
        with self._lock:
            held.linearization = linearization
            self._keep(held)
            self._wake(held)

    def get(self, name: str, key: str) -> tuple[Held, Linearization]:
        """Return a linearization of a key; raises ``NotFound`` for that of another key, and ``Gone``."""
        with self._lock:
            held = self._used(name, key)
            if held is not None:
                if held.linearization is not None and held.ends > time.monotonic():
                    return held, held.linearization
                self._drop(held)
            elif self._is_of_another(name) or not _NAME.fullmatch(name):
                message = f"unknown linearization {name!r}: expected an id from POST /v1/ops/{{op}}/linearize"
                raise NotFound(message)
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

    def _drop(self, held: Held) -> None:
        """Forget a linearization; a call that uses it goes on, and keeps nothing more."""
        held.linearization = None
        super()._drop(held)

    def _wake(self, held: Held) -> None:
        """Free memory soon after a linearization ends, also where no request comes."""
        if self._timer is None:
            self._timer = threading.Timer(max(0.0, held.ends - time.monotonic()) + SWEPT_S, self._sweep)
            self._timer.daemon = True
            self._timer.start()

    def _sweep(self) -> None:
        with self._lock:
            self._timer, now = None, time.monotonic()
            for held in [each for each in self._places() if each.ends <= now]:
                self._drop(held)
            if left := self._places():
                self._wake(min(left, key=lambda each: each.ends))
