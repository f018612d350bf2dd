"""The posted graphs: a file for each, with its document behind the line of the owner, and the ops of a process."""

import logging
import re
from pathlib import Path

import orjson

from app.errors import NotFound, PullbackError
from app.graphs.document import DIGITS, MAX_DOCUMENT, PREFIX, GraphDocument
from app.graphs.graph_op import GraphOp, graph_op
from app.graphs.wiring import FindOp
from app.kept.folder import Bounds, SharedFolder
from app.kept.memory import Recent
from ops import Op

log = logging.getLogger("pullback")

KEPT = 256
"""How many graphs are kept, in the folder and in each process."""
NAME = re.compile(rf"{PREFIX}\.[0-9a-f]{{{DIGITS}}}")
ENDING = ".json"
# All files together.
MAX_BYTES = 1 << 24


class GraphFolder(SharedFolder):
    """A folder of graphs, at most ``kept``."""

    def __init__(self, path: Path, kept: int) -> None:
        """Take a folder; it is made for the first graph."""
        named, bounds = rf"[0-9a-f]{{{DIGITS}}}{re.escape(ENDING)}", Bounds(kept, MAX_DOCUMENT, MAX_BYTES, MAX_BYTES)
        super().__init__(path, "graphs", named, bounds)

    def use(self, name: str) -> bool:
        """Note that a graph is used; return whether it is still there."""
        return self.use_file(_file(name))

    def read(self, name: str) -> tuple[GraphDocument, str] | None:
        """Return the document of a graph and its owner, ``None`` if there is none with this digest."""
        try:
            file, owner = self.open_file(_file(name))
            with file:
                document = GraphDocument.read(file.read())
        except FileNotFoundError:
            return None
        except (OSError, PullbackError, orjson.JSONDecodeError) as error:
            log.warning("the file of %s cannot be read: %s", name, error)
            return None
        return (document, owner) if document.name == name else None

    def write(self, document: GraphDocument, owner: str) -> None:
        """Keep a document; raises ``Overloaded`` if it cannot be written."""
        name, content = _file(document.name), document.canonical
        try:
            new = self.begin(name, owner, len(content))
            try:
                new.file.write(content)
                self.keep(new, name)
            finally:
                new.drop()
        except OSError as error:
            raise self.refused(error) from None


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
        return self._kept.add(op.name, op), True

    def op(self, name: str) -> GraphOp:
        """Return the op of a graph, which may have to be read and built; raises ``NotFound``."""
        if (known := self.known(name)) is not None:
            return known
        found = self.folder.read(name) if NAME.fullmatch(name) else None
        if found is None:
            raise _gone(name)
        try:
            return self._kept.add(name, graph_op(found[0], self._find))
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


def _file(name: str) -> str:
    return f"{name.removeprefix(f'{PREFIX}.')}{ENDING}"
