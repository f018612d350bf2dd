"""What a process keeps of linearizations, and of sparsities with their colorings."""

import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Hashable

from app.autodiff.linearization import Linearization
from app.autodiff.sparsity import DIGITS, Sparsity
from app.errors import Gone, NotFound, wrong
from app.kept.memory import Held, Memory

# How long a linearization is kept after it was made or renewed, by default and at most.
KEPT_S, LONGEST_S = 600.0, 6 * 3600.0
# What each takes besides its tensors.
OVERHEAD = 1 << 14
_NAME = re.compile(r"[0-9a-f]{8}-[0-9a-f]{32}")
LIMIT = 128 << 20
# Of how many uses it is noted that their nonzeros must be searched at each point.
UNKNOWN = 4096
_SPARSITY = re.compile(rf"[0-9a-f]{{{DIGITS}}}")


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


class Sparsities(Memory[tuple[Sparsity, Hashable]]):
    """Sparsities by key and by id, the digest of the pattern; or the last one for a use, which is kept beside it."""

    def __init__(self, limit: int = LIMIT) -> None:
        """Start empty."""
        super().__init__(limit)
        self._of_uses = dict[tuple[str, Hashable], Held[tuple[Sparsity, Hashable]]]()
        self._unknown = OrderedDict[Hashable, None]()

    def is_unknown(self, use: Hashable) -> bool:
        """Return whether a search has shown that the nonzeros of a use may differ from point to point."""
        return use in self._unknown

    def note_unknown(self, use: Hashable) -> None:
        """Note that the nonzeros of a use may differ from point to point."""
        with self._lock:
            self._unknown[use] = None
            if len(self._unknown) > UNKNOWN:
                self._unknown.popitem(last=False)

    def add(self, sparsity: Sparsity, key: str, use: Hashable) -> bool:
        """Keep a sparsity as the last one for a use; return whether there is room for it."""
        with self._lock:
            if (held := self.find(sparsity.pattern.digest, key)) is not None:
                self.forget(held)
            held = Held[tuple[Sparsity, Hashable]](sparsity.pattern.digest, key)
            if not self.reserve(held, sparsity.bytes):
                return False
            self.keep(held, (sparsity, use))
            self._of_uses[key, use] = held
            return True

    def get(self, name: str, key: str) -> Sparsity:
        """Return a sparsity of a key; raises ``NotFound`` for that of another key, and ``Gone``."""
        with self._lock:
            if (held := self.find(name, key)) is not None and held.value is not None:
                return held.value[0]
            if self.is_of_another(name) or not _SPARSITY.fullmatch(name):
                raise NotFound(f"unknown sparsity {name!r}: expected an id from POST /v1/ops/{{op}}/sparsity")
        raise Gone(
            f"sparsity {name} is not kept, and the service finds another one at this point: send its pattern again, or "
            "leave out sparsity"
        )

    def last(self, key: str, use: Hashable) -> Sparsity | None:
        """Return the last sparsity that a key has kept for a use."""
        with self._lock:
            held = self._of_uses.get((key, use))
            return None if held is None else self.get(held.id, key)

    def forget(self, held: Held[tuple[Sparsity, Hashable]]) -> None:
        """Forget a sparsity, also as the last one for its use."""
        with self._lock:
            if held.value is not None and self._of_uses.get(last := (held.key, held.value[1])) is held:
                del self._of_uses[last]
            super().forget(held)
