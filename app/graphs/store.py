"""The posted graphs of a process: a bounded number of ops, of the documents in a folder."""

import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from app.errors import NotFound, PullbackError
from app.graphs.document import DIGITS, PREFIX, GraphDocument
from app.graphs.folder import GraphFolder
from app.graphs.graph_op import GraphOp, graph_op
from app.graphs.wiring import FindOp
from ops import Op

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
    """The posted graphs, whose nodes are ops that ``find`` returns. It may be used by any thread.

    Graphs are read, built and written without a lock, so that a slow file system or a large graph holds only its
    caller.
    """

    def __init__(self, find: FindOp, folder: GraphFolder, kept: int = KEPT) -> None:
        """Start with those of the folder."""
        self.folder = folder
        self._find, self._limit, self._lock = find, kept, threading.Lock()
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._uses = _Uses(self.folder, self._drop)

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
        return self._keep(op), True

    def op(self, name: str) -> GraphOp:
        """Return the op of a graph, which may have to be read and built; raises ``NotFound``."""
        if (known := self.known(name)) is not None:
            return known
        found = self.folder.read(name) if NAME.fullmatch(name) else None
        if found is None:
            raise _gone(name)
        try:
            return self._keep(graph_op(found[0], self._find))
        except PullbackError as error:
            raise NotFound(f"graph {name!r} is no longer valid: {error.detail}") from None

    def known(self, name: str) -> GraphOp | None:
        """Return the op of a graph if this process has read it, and note its use; it never blocks.

        If another process has evicted the graph, that becomes known within seconds.
        """
        with self._lock:
            kept, now = self._kept.get(name), time.monotonic()
            if kept is None:
                return None
            self._kept.move_to_end(name)
            if now - kept.noted > NOTED_S:
                kept.noted = now
                self._uses.note(name)
            return kept.op

    def is_kept(self, name: str) -> bool:
        """Note that a graph is used; return whether this process has it. It never blocks."""
        return self.known(name) is not None

    def has(self, op: Op) -> bool:
        """Return whether this process has a graph with this op, without using it."""
        kept = self._kept.get(op.name)
        return kept is not None and kept.op is op

    def _keep(self, op: GraphOp) -> GraphOp:
        """Keep an op; return that which another thread has kept meanwhile, if one has."""
        with self._lock:
            kept = self._kept.setdefault(op.name, _Kept(op, time.monotonic()))
            while len(self._kept) > self._limit:
                self._kept.popitem(last=False)
            return kept.op

    def _drop(self, name: str) -> None:
        with self._lock:
            self._kept.pop(name, None)


class _Uses:
    """The uses of graphs, noted in their files by a thread: a file system may take long, or never answer."""

    def __init__(self, folder: GraphFolder, gone: Callable[[str], None]) -> None:
        """Call ``gone`` with the name of a graph whose file is no longer there."""
        self._folder, self._gone = folder, gone
        self._names, self._is_running = dict[str, None](), False
        self._lock = threading.Lock()

    def note(self, name: str) -> None:
        """Note a use, soon."""
        with self._lock:
            self._names[name] = None
            is_first, self._is_running = not self._is_running, True
        if is_first:
            threading.Thread(target=self._write, name="graph-uses", daemon=True).start()

    def _write(self) -> None:
        """Note the uses that there are; the thread ends when none is left."""
        while True:
            with self._lock:
                if not self._names:
                    self._is_running = False
                    return
                name = next(iter(self._names))
                del self._names[name]
            if not self._folder.use(name):
                self._gone(name)


def _gone(name: str) -> NotFound:
    return NotFound(
        f"unknown graph {name!r}: expected {PREFIX}. and the {DIGITS} digits of a graph that is kept; post its "
        "document again (POST /v1/graphs), which gives it the same name"
    )
