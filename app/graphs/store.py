"""The posted graphs of a process: a bounded number of ops, of the documents in a folder."""

import re

from app.errors import NotFound, PullbackError
from app.graphs.document import DIGITS, PREFIX, GraphDocument
from app.graphs.folder import GraphFolder
from app.graphs.graph_op import GraphOp, graph_op
from app.graphs.wiring import FindOp
from app.stored.recent import Recent
from ops import Op

KEPT = 256
"""How many graphs are kept, in the folder and in each process."""
NAME = re.compile(rf"{PREFIX}\.[0-9a-f]{{{DIGITS}}}")


class GraphStore:
    """The posted graphs, whose nodes are ops that ``find`` returns. It may be used by any thread.

    Graphs are read, built and written without a lock, so that a slow file system or a large graph holds only its
    caller.
    """

    def __init__(self, find: FindOp, folder: GraphFolder, kept: int = KEPT) -> None:
        """Start with those of the folder."""
        self.folder, self._find = folder, find
        self._kept = Recent[GraphOp](folder.use, kept)

    def __len__(self) -> int:
        """Return the number of graphs that this process has read."""
        return len(self._kept)

    def add(self, document: GraphDocument, owner: str) -> tuple[GraphOp, bool]:
        """Return the op of a document, and whether it is new; it counts for ``owner``, the name of a key.

        Raises ``Unprocessable`` for a document that is not valid. Where there are too many graphs, the least used of
        the owner with the most goes.
        """
        name = document.name
        if (op := self.known(name)) is None:
            try:
                return self.op(name), False
            except NotFound:
                op = graph_op(document, self._find)
        elif self.folder.use(name):
            return op, False
        self.folder.write(document, owner)
        return self._kept.keep(op.name, op), True

    def op(self, name: str) -> GraphOp:
        """Return the op of a graph, which may have to be read and built; raises ``NotFound``."""
        if (known := self.known(name)) is not None:
            return known
        found = self.folder.read(name) if NAME.fullmatch(name) else None
        if found is None:
            raise _gone(name)
        try:
            return self._kept.keep(name, graph_op(found[0], self._find))
        except PullbackError as error:
            raise NotFound(f"graph {name!r} is no longer valid: {error.detail}") from None

    def known(self, name: str) -> GraphOp | None:
        """Return the op of a graph if this process has read it, and note its use; it never blocks.

        If another process has evicted the graph, that becomes known within seconds.
        """
        return self._kept.known(name)

    def is_kept(self, name: str) -> bool:
        """Note that a graph is used; return whether this process has it. It never blocks."""
        return self.known(name) is not None

    def has(self, op: Op) -> bool:
        """Return whether this process has a graph with this op, without using it."""
        return isinstance(op, GraphOp) and self._kept.has(op.name, op)


def _gone(name: str) -> NotFound:
    return NotFound(
        f"unknown graph {name!r}: expected {PREFIX}. and the {DIGITS} digits of a graph that is kept; post its "
        "document again (POST /v1/graphs), which gives it the same name"
    )
