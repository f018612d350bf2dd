"""The folder of posted graphs, which all processes of a service on one host share: a file for each.

A file is named by the digest of its graph. Its first line is the owner of the graph, and its second the document. Its
time of change is that of its last use. Nothing in it is trusted: a document counts only under the name that follows
from it.
"""

import logging
import os
import secrets
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import orjson

from app.errors import Overloaded, PullbackError
from app.graphs.document import DIGITS, MAX_DOCUMENT, PREFIX, GraphDocument

log = logging.getLogger("pullback")

ENDING = ".json"
MAX_OWNER = 1 << 10
# All files together.
MAX_BYTES = 1 << 24


class _File(NamedTuple):
    path: Path
    owner: str
    used: int
    size: int


class GraphFolder:
    """A folder of graphs, at most ``kept``; without a ``path``, one of this process, which ``close`` removes."""

    def __init__(self, path: Path | None, kept: int) -> None:
        """Take a folder; it is made for the first graph."""
        self._is_own, self._kept = path is None, kept
        self.path = path or Path(tempfile.gettempdir(), f"pullback-graphs-{secrets.token_hex(8)}")

    def close(self) -> None:
        """Remove the folder if it is that of this process."""
        if self._is_own:
            shutil.rmtree(self.path, ignore_errors=True)

    def use(self, name: str) -> bool:
        """Note that a graph is used; return whether it is still there."""
        try:
            os.utime(self._path(name))
        except FileNotFoundError:
            return False
        except OSError:
            return True  # a folder that may only be read
        return True

    def read(self, name: str) -> tuple[GraphDocument, str] | None:
        """Return the document of a graph and its owner, ``None`` if there is none with this digest."""
        try:
            with self._path(name).open("rb") as file:
                first, _, text = file.read(MAX_DOCUMENT + MAX_OWNER).partition(b"\n")
            document, owner = GraphDocument.read(text), orjson.loads(first)
        except FileNotFoundError:
            return None
        except (OSError, PullbackError, orjson.JSONDecodeError) as error:
            log.warning("the file of %s cannot be read: %s", name, error)
            return None
        return (document, str(owner)) if document.name == name else None

    def write(self, document: GraphDocument, owner: str) -> None:
        """Keep a document; where there are too many, the least used of the owner with the most goes.

        Raises ``Overloaded`` if it cannot be written.
        """
        path = self._path(document.name)
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
            new.write_bytes(orjson.dumps(owner) + b"\n" + document.canonical)
            new.replace(path)
            size = path.stat().st_size
        except OSError as error:
            log.exception("the folder of graphs cannot be written")
            raise Overloaded(f"graphs cannot be kept: {error.strerror}", retry_after_s=5) from error
        others = [file for file in self._files() if file.path != path]
        while len(others) >= self._kept or size + sum(file.size for file in others) > MAX_BYTES:
            [(most, _)] = Counter(file.owner for file in others).most_common(1)
            oldest = min((file for file in others if file.owner == most), key=lambda file: file.used)
            with suppress(OSError):
                oldest.path.unlink()
            others.remove(oldest)

    def _path(self, name: str) -> Path:
        return self.path / f"{name.removeprefix(f'{PREFIX}.')}{ENDING}"

    def _files(self) -> Iterator[_File]:
        for path in self.path.glob(f"{'[0-9a-f]' * DIGITS}{ENDING}"):
            with suppress(OSError, orjson.JSONDecodeError), path.open("rb") as file:
                owner, status = str(orjson.loads(file.readline(MAX_OWNER))), os.fstat(file.fileno())
                yield _File(path, owner, status.st_mtime_ns, status.st_size)
