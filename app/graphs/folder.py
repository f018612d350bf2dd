"""The folder of posted graphs, which all processes of a service on one host share: a file for each.

A file is named by the digest of its graph. Its first line is the owner of the graph, and its second the document. Its
time of change is that of its last use. Nothing in it is trusted: a document counts only under the name that follows
from it, and only regular files of a bounded size are read.
"""

import errno
import logging
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
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
MAX_FILE = MAX_DOCUMENT + MAX_OWNER
# All files together.
MAX_BYTES = 1 << 24
KEPT_FILE = re.compile(rf"[0-9a-f]{{{DIGITS}}}{re.escape(ENDING)}")
NEW_FILE = re.compile(rf"\.{KEPT_FILE.pattern}\.[0-9a-f]{{8}}")
# The errors of a full disk.
FULL = (errno.ENOSPC, errno.EDQUOT)
# A new file that is older was left by a process that died.
WRITING_S = 60.0


class _File(NamedTuple):
    path: Path
    owner: str
    used: int
    size: int


class GraphFolder:
    """A folder of graphs, at most ``kept``; without a ``path``, one of this process, which ``close`` removes.

    Its methods may block as long as the file system does.
    """

    def __init__(self, path: Path | None, kept: int) -> None:
        """Take a folder; it is made for the first graph."""
        self._is_own, self._kept = path is None, kept
        self.path = path or Path(tempfile.gettempdir(), f"pullback-graphs-{secrets.token_hex(8)}")
        self._owners: dict[tuple[str, int], str] = {}

    def close(self) -> None:
        """Remove the folder if it is that of this process."""
        if self._is_own:
            shutil.rmtree(self.path, ignore_errors=True)

    def use(self, name: str) -> bool:
        """Note that a graph is used; return whether it is still there."""
        try:
            os.utime(self._path(name), follow_symlinks=False)
        except FileNotFoundError:
            return False
        except OSError:
            return True  # a folder that may only be read
        return True

    def read(self, name: str) -> tuple[GraphDocument, str] | None:
        """Return the document of a graph and its owner, ``None`` if there is none with this digest."""
        try:
            first, _, text = _content(self._path(name), MAX_FILE).partition(b"\n")
            document, owner = GraphDocument.read(text), orjson.loads(first)
        except FileNotFoundError:
            return None
        except (OSError, PullbackError, orjson.JSONDecodeError) as error:
            log.warning("the file of %s cannot be read: %s", name, error)
            return None
        return (document, str(owner)) if document.name == name else None

    def write(self, document: GraphDocument, owner: str) -> None:
        """Keep a document; where there are too many, or the disk is full, the least used of the owner with the most go.

        Raises ``Overloaded`` if it cannot be written.
        """
        path, content = self._path(document.name), orjson.dumps(owner) + b"\n" + document.canonical
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._make_room(path, len(content))
            try:
                _replace(path, content)
            except OSError as error:
                if error.errno not in FULL:
                    raise
                self._make_room(path, len(content), is_full=True)
                _replace(path, content)
        except OSError as error:
            log.error("the folder of graphs cannot be written: %s", error)
            raise Overloaded(f"graphs cannot be kept: {error.strerror}", retry_after_s=5) from None

    def _make_room(self, path: Path, size: int, *, is_full: bool = False) -> None:
        """Remove files until there is room for one of ``size`` bytes at ``path``; if the disk ``is_full``, as much."""
        others = [file for file in self._files() if file.path != path]
        most = sum(file.size for file in others)
        total, most = size + most, min(most, MAX_BYTES) if is_full else MAX_BYTES
        while others and (len(others) >= self._kept or total > most):
            [(owner, _)] = Counter(file.owner for file in others).most_common(1)
            oldest = min((file for file in others if file.owner == owner), key=lambda file: file.used)
            with suppress(OSError):
                oldest.path.unlink()
            others.remove(oldest)
            total -= oldest.size

    def _path(self, name: str) -> Path:
        return self.path / f"{name.removeprefix(f'{PREFIX}.')}{ENDING}"

    def _files(self) -> Iterator[_File]:
        """Yield the graphs of the folder, and remove what dead processes have left there."""
        known, self._owners = self._owners, {}
        with os.scandir(self.path) as entries:
            for entry in entries:
                is_new = NEW_FILE.fullmatch(entry.name) is not None
                if not is_new and not KEPT_FILE.fullmatch(entry.name):
                    continue
                with suppress(OSError):
                    status, path = entry.stat(follow_symlinks=False), Path(entry.path)
                    if is_new:
                        if time.time() - status.st_mtime > WRITING_S:
                            path.unlink()
                    elif stat.S_ISREG(status.st_mode):
                        key = entry.name, status.st_ino
                        owner = self._owners[key] = known.get(key) or _owner(path)
                        yield _File(path, owner, status.st_mtime_ns, status.st_size)


def _replace(path: Path, content: bytes) -> None:
    """Write a file whole, or not at all."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with new.open("xb") as file:
            file.write(content)
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise


def _owner(path: Path) -> str:
    """Return the owner of a graph, "" if the file names none."""
    try:
        return str(orjson.loads(_content(path, MAX_OWNER, is_whole=False).partition(b"\n")[0]))
    except orjson.JSONDecodeError:
        return ""


def _content(path: Path, limit: int, *, is_whole: bool = True) -> bytes:
    """Return the content of a file, or its first ``limit`` bytes if that need not be whole.

    Raises ``OSError`` for a link, for anything else that is no regular file, without waiting for it, and for a file
    that is larger.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise OSError("expected a regular file")
    with open(descriptor, "rb") as file:
        content = file.read(limit + is_whole)
    if len(content) > limit:
        raise OSError(f"expected at most {limit} bytes, got {status.st_size}")
    return content
