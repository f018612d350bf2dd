"""The posted graphs of a process: a bounded number, by name; the least used goes."""

import itertools
from collections import Counter
from dataclasses import dataclass, field

from app.errors import NotFound
from app.graphs.document import DIGITS, PREFIX, GraphDocument
from app.graphs.graph_op import GraphOp, graph_op
from app.graphs.wiring import FindOp

KEPT = 256
"""How many graphs a process keeps."""


@dataclass
class _Entry:
    document: GraphDocument
    op: GraphOp
    owner: str
    used: int


@dataclass
class GraphStore:
    """The posted graphs. ``find`` returns the ops of their nodes."""

    find: FindOp
    kept: int = KEPT
    _entries: dict[str, _Entry] = field(default_factory=dict[str, _Entry])
    _clock: "itertools.count[int]" = field(default_factory=itertools.count)

    def __len__(self) -> int:
        """Return the number of graphs."""
        return len(self._entries)

    def add(self, document: GraphDocument, owner: str) -> tuple[GraphOp, bool]:
        """Return the op of a document, and whether it is new; it counts for ``owner``, the name of a key.

        Raises ``Unprocessable`` for a document that is not valid. Where there are too many graphs, the least used of
        the owner with the most goes.
        """
        name = document.name
        if (entry := self._entries.get(name)) is not None:
            entry.used = next(self._clock)
            return entry.op, False
        op = graph_op(document, self.find)
        self._entries[name] = _Entry(document, op, owner, next(self._clock))
        while len(self._entries) > self.kept:
            [(most, _)] = Counter(entry.owner for entry in self._entries.values()).most_common(1)
            oldest = min(
                (key for key, entry in self._entries.items() if entry.owner == most and key != name),
                key=lambda key: self._entries[key].used,
            )
            del self._entries[oldest]
        return op, True

    def op(self, name: str) -> GraphOp:
        """Return the op of a graph; raises ``NotFound``."""
        return self._entry(name).op

    def document(self, name: str) -> GraphDocument:
        """Return the document of a graph; raises ``NotFound``."""
        return self._entry(name).document

    def _entry(self, name: str) -> _Entry:
        entry = self._entries.get(name)
        if entry is None:
            expected = f"{PREFIX}.<the {DIGITS} digits of its digest>"
            raise NotFound(
                f"unknown graph {name!r}: expected {expected} of a graph that is kept; post its document again "
                "(POST /v1/graphs), which gives it the same name"
            )
        entry.used = next(self._clock)
        return entry
