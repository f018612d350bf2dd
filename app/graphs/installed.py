"""The graphs that an operator has installed: files NAME.graph.json beside the pages of ops."""

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import MappingProxyType

from app.autodiff.derived import derived
from app.errors import MAX_TEXT, NotFound, PullbackError, clip, did_you_mean
from app.graphs.document import MAX_DOCUMENT, PREFIX, GraphDocument
from app.graphs.graph_op import GraphOp, graph_op
from ops import Op, Registry, Unavailable

log = logging.getLogger("pullback")

ENDING = ".graph.json"
OP_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
"""The names of ops, which those of files become."""


def with_graphs(registry: Registry, folders: Iterable[Path], admit: Callable[[Op], None]) -> Registry:
    """Return a registry with the graphs in these folders, in order of name; a graph may use those before it.

    A file that is wrong in any way is listed as unavailable, with its error.
    """
    folders = dict.fromkeys(folder.absolute() for folder in folders)
    paths = [path for folder in folders for path in sorted(folder.glob(f"*{ENDING}")) if path.name[0] not in "_."]
    if not paths:
        return registry
    ops, pages, unavailable = dict(registry.ops), dict(registry.pages), list(registry.unavailable)

    def find(name: str) -> Op:
        registered, *derivations = name.split(".")
        if registered not in ops:
            raise NotFound(f"unknown op {name!r}; {did_you_mean(registered, ops)}")
        return derived(ops[registered], name, derivations)

    for path in paths:
        name = path.name.removesuffix(ENDING)
        try:
            op = _installed(path, name, [*ops, PREFIX], find)
            admit(op)
            ops[name], pages[name] = op, path
        except (PullbackError, ValueError, OSError) as error:
            text = error.sentence() if isinstance(error, PullbackError) else str(error)
            cure = f"; correct {path.parent.name}/{path.name} and start again"
            why = clip(text, MAX_TEXT - len(cure)) + cure
            log.warning("op %s is unavailable: %s", name, why)
            unavailable.append(Unavailable(name if name not in ops else f"{path.parent.name}/{name}", why))
    found = MappingProxyType({name: ops[name] for name in sorted(ops)})
    return Registry(found, tuple(unavailable), pages, registry.stale)


def _installed(path: Path, name: str, taken: Sequence[str], find: Callable[[str], Op]) -> GraphOp:
    if not OP_NAME.fullmatch(name):
        raise ValueError(f"expected a name like [a-z][a-z0-9_]{{0,63}} before {ENDING}, got {name!r}")
    if name in taken:
        raise ValueError(f"another op has the name {name!r}; rename one")
    if path.stat().st_size > MAX_DOCUMENT:
        raise ValueError(f"expected a document of at most {MAX_DOCUMENT} bytes, got {path.stat().st_size}")
    op = graph_op(GraphDocument.read(path.read_bytes()), find, name)
    if not op.examples:
        raise ValueError("expected an example in the document, because the op refuses numbers that are made up")
    return op
