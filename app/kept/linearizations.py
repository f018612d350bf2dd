"""The linearizations of a process: what expensive forward passes have computed, each for a time."""

import re
import secrets
import time

from app.autodiff.linearization import Linearization
from app.errors import Gone, NotFound, wrong
from app.kept.memory import Held, Memory

# How long a linearization is kept after it was made or renewed, by default and at most.
KEPT_S, LONGEST_S = 600.0, 6 * 3600.0
# What each takes besides its tensors.
OVERHEAD = 1 << 14
_NAME = re.compile(r"[0-9a-f]{8}-[0-9a-f]{32}")


class Linearizations(Memory[Linearization]):
    """Linearizations by id, each for the time that it is kept."""

    def __init__(self, limit: int) -> None:
        """Start empty; ids begin with the name of this ``process``."""
        super().__init__(limit)
        self.process = secrets.token_hex(4)

    def begin(self, key: str) -> Held[Linearization]:
        """Return a new place; it is found by its id after ``keep``."""
        return Held(f"{self.process}-{secrets.token_hex(16)}", key, time.monotonic() + KEPT_S)

    def get(self, name: str, key: str) -> tuple[Held[Linearization], Linearization]:
        """Return a linearization of a key; raises ``NotFound`` for that of another key, and ``Gone``."""
        with self._lock:
            if (held := self.find(name, key)) is not None and held.value is not None:
                return held, held.value
            if self.is_of_another(name) or not _NAME.fullmatch(name):
                message = f"unknown linearization {name!r}: expected an id from POST /v1/ops/{{op}}/linearize"
                raise NotFound(message)
        raise Gone(
            f"linearization {name} has ended, was evicted, or is that of another process: linearize again, or send the "
            "inputs to the op"
        )

    def renew(self, name: str, key: str, expires_s: float) -> Held[Linearization]:
        """Let a linearization end later or sooner; raises as ``get``, and ``Unprocessable`` for too long a time.

        A key whose linearizations take more than half of the room may not keep them longer than by default.
        """
        with self._lock:
            held, own = self.get(name, key)
            is_large = 2 * self._sizes[key] > self._limit
            most = KEPT_S if is_large else LONGEST_S
            if not 0 < expires_s <= most:
                expected = f"more than 0 and at most {most:g} seconds" + " with so many bytes" * is_large
                raise wrong(("expires_s",), "invalid time", expected=expected, got=f"{expires_s:g}")
            held.ends = time.monotonic() + expires_s
            self.keep(held, own)
            return held

    def drop(self, name: str, key: str) -> None:
        """Free a linearization; raises as ``get``."""
        with self._lock:
            self.forget(self.get(name, key)[0])
