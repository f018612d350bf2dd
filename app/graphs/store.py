"""The posted graphs of a process: a bounded number of ops, of the documents in a folder."""

import re
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass

from app.errors import NotFound, PullbackError
from app.graphs.document import DIGITS, PREFIX, GraphDocument
from app.graphs.folder import GraphFolder
from app.graphs.graph_op import GraphOp, graph_op
from app.graphs.wiring import FindOp

KEPT = 256
"""How many graphs are kept, in the folder and in each process."""
NAME = re.compile(rf"{PREFIX}\.[0-9a-f]{{{DIGITS}}}")
# How long a use of a graph is noted in its file.
NOTED_S = 1.0


@dataclass(eq=False)
class _Kept:
    op: GraphOp
    noted: float


class GraphStore:
    """The posted graphs, whose nodes are ops that ``find`` returns. It may be used by any thread."""

    def __init__(self, find: FindOp, folder: GraphFolder, kept: int = KEPT) -> None:
        """Start with those of the folder."""
        self.folder = folder
        self._find, self._limit, self._lock = find, kept, threading.RLock()
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of graphs that this process has read."""
        return len(self._kept)

    def add(self, document: GraphDocument, owner: str) -> tuple[GraphOp, bool]:
        """Return the op of a document, and whether it is new; it counts for ``owner``, the name of a key.

        Raises ``Unprocessable`` for a document that is not valid. Where there are too many graphs, the least used of
        the owner with the most goes.
        """
        with self._lock:
            try:
                return self.op(document.name), False
            except NotFound:
                op = graph_op(document, self._find)
                self.folder.write(document, owner)
                self._keep(op)
                return op, True

    def op(self, name: str) -> GraphOp:
        """Return the op of a graph; raises ``NotFound``."""
        return self._get(name).op

    def is_kept(self, name: str) -> bool:
        """Note that a graph is used; return whether it is still there."""
        try:
            self._get(name)
        except NotFound:
            return False
        return True

    def _get(self, name: str) -> _Kept:
        with self._lock:
            kept, now = self._kept.get(name), time.monotonic()
            if kept is not None and now - kept.noted > NOTED_S:
                kept.noted = now
                if not self.folder.use(name):
                    del self._kept[name]
                    kept = None
            if kept is None:
                found = self.folder.read(name) if NAME.fullmatch(name) else None
                if found is None:
                    raise _gone(name)
                try:
                    kept = self._keep(graph_op(found[0], self._find))
                except PullbackError as error:
                    raise NotFound(f"graph {name!r} is no longer valid: {error.detail}") from None
            self._kept.move_to_end(name)
            return kept

    def _keep(self, op: GraphOp) -> _Kept:
        kept = self._kept[op.name] = _Kept(op, time.monotonic())
        while len(self._kept) > self._limit:
            self._kept.popitem(last=False)
        return kept


def _gone(name: str) -> NotFound:
    return NotFound(
        f"unknown graph {name!r}: expected {PREFIX}. and the {DIGITS} digits of a graph that is kept; post its "
        "document again (POST /v1/graphs), which gives it the same name"
    )
