"""The sparsities of a process: patterns with their colorings."""

import re
from collections import OrderedDict
from collections.abc import Hashable

from app.autodiff.sparsity import DIGITS, Sparsity
from app.errors import Gone, NotFound
from app.kept.memory import Held, Memory

LIMIT = 128 << 20
# Of how many uses it is noted that their nonzeros must be searched at each point.
UNKNOWN = 4096
_NAME = re.compile(rf"[0-9a-f]{{{DIGITS}}}")


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
            if self.is_of_another(name) or not _NAME.fullmatch(name):
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
