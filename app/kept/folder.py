"""A folder of what clients have posted, one file each. All processes of a service on one host share it.

The name of a file contains a digest of its content. The first line names the owner, and the content follows. The
modification time is the time of the last use. Nothing in the folder is trusted: only regular files of a bounded size
are opened, and callers check that the content has the digest.
"""

import errno
import logging
import os
import re
import secrets
import stat
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, NamedTuple

import orjson

from app.errors import Overloaded

log = logging.getLogger("pullback")

MAX_OWNER = 1 << 10
# The end of the name of a file that is being written.
NEW = re.compile(r"\..+\.[0-9a-f]{8}")
# The errors of a full disk.
FULL = (errno.ENOSPC, errno.EDQUOT)
# A process that has not written to its new file for so long has died.
WRITING_S = 60.0
# An owner may have more than one new file at a time up to this part of what it may have kept.
UNFINISHED = 2


@dataclass(frozen=True)
class Bounds:
    """Limits: the number of files, and the bytes of one content, of the files of one owner, and of all files."""

    files: int
    content: int
    of_owner: int
    total: int


class _File(NamedTuple):
    path: Path
    owner: str
    used: int
    size: int
    is_new: bool


@dataclass(eq=False)
class NewFile:
    """A file that is being written, and its path. The owner, in the first line, is written already."""

    path: Path
    file: BinaryIO

    def drop(self) -> None:
        """Close the file, and remove it unless it was kept."""
        with suppress(OSError):
            self.file.close()
        self.path.unlink(missing_ok=True)


class SharedFolder:
    """A folder of ``noun``, such as parameters.

    ``named`` is a regular expression for the names of the files. All methods may wait for the file system.
    """

    def __init__(self, path: Path, noun: str, named: str, bounds: Bounds) -> None:
        """Store the settings; the first file creates the folder."""
        self.path, self._noun, self.bounds = path, noun, bounds
        self._named = re.compile(named)
        self._owners: dict[tuple[str, int], str] = {}

    def use_file(self, name: str) -> bool:
        """Set the time of the last use of a file; return whether the file exists."""
        try:
            os.utime(self.path / name, follow_symlinks=False)
        except FileNotFoundError:
            return False
        except OSError:
            return True  # the folder is read-only
        return True

    def open_file(self, name: str) -> tuple[BufferedReader, str]:
        """Open a file and read its first line; return the file and its owner.

        Raises ``OSError`` for a file that does not exist, or that this class has not written.
        """
        file, first = _opened(self.path / name, self.bounds.content + MAX_OWNER)
        with suppress(orjson.JSONDecodeError):
            return file, str(orjson.loads(first))
        file.close()
        raise OSError("expected an owner in the first line")

    def names(self, owner: str, prefix: str) -> Iterator[str]:
        """Yield the names of an owner's files that begin with ``prefix``, the most recently used first."""
        with suppress(OSError):
            files = sorted(self._files(), key=lambda file: -file.used)
            yield from (
                file.path.name
                for file in files
                if not file.is_new and file.owner == owner and file.path.name.startswith(prefix)
            )

    def begin(self, name: str, owner: str, size: int) -> NewFile:
        """Create a file with room for ``size`` bytes of content, which ``keep`` names.

        It removes no file that is kept, but on a full disk: there, for the only new file of an owner, it removes as
        many bytes as that needs, as ``keep`` does. Raises ``OSError``, also where the new files of the owner are too
        large together.
        """
        first = orjson.dumps(owner) + b"\n"
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        unfinished = sum(file.size for file in self._files() if file.is_new and file.owner == owner)
        if unfinished and unfinished + size > min(self.bounds.of_owner, self.bounds.total) // UNFINISHED:
            raise OSError(errno.EDQUOT, "other uploads are in progress")
        try:
            return self._begin(name, first, size)
        except OSError as error:
            # Where a client leaves its uploads unfinished, only one of them may have removed what others have kept.
            if error.errno not in FULL or unfinished:
                raise
            self._make_room(name, owner, len(first) + size, is_full=True)
            return self._begin(name, first, size)

    def keep(self, new: NewFile, name: str) -> None:
        """Name a new file; a file that has the name is replaced. Raises ``OSError``.

        To make room, this removes the least recently used files of the owner, then those of the owner that has the
        most.
        """
        new.file.close()
        new.path.replace(path := self.path / name)
        self._make_room(name, _owner(path, self.bounds.content + MAX_OWNER), path.stat().st_size)

    def refused(self, error: OSError) -> Overloaded:
        """Log an error of the file system; return the error for the client."""
        log.error("the folder of %s cannot be written: %s", self._noun, error)
        return Overloaded(f"{self._noun} cannot be kept: {error.strerror}", retry_after_s=5)

    def _begin(self, name: str, first: bytes, size: int) -> NewFile:
        path = self.path / f".{name}.{secrets.token_hex(4)}"
        try:
            new = NewFile(path, path.open("xb"))
        except OSError:
            path.unlink(missing_ok=True)
            raise
        try:
            # Allocate now: the disk may be full, and other processes must count the whole size.
            if size:
                os.posix_fallocate(new.file.fileno(), 0, len(first) + size)
            new.file.write(first)
            new.file.flush()  # other processes must know the owner
        except OSError:
            new.drop()
            raise
        return new

    def _make_room(self, name: str, owner: str, size: int, *, is_full: bool = False) -> None:
        """Remove files until one of ``size`` bytes fits; if the disk ``is_full``, at least ``size`` bytes."""
        others = [file for file in self._files() if not file.is_new and file.path.name != name]
        own = size + sum(file.size for file in others if file.owner == owner)
        while own > self.bounds.of_owner and (file := _oldest(others, owner)) is not None:
            _remove(others, file)
            own -= file.size
        most = sum(file.size for file in others)
        total, most = size + most, min(most, self.bounds.total) if is_full else self.bounds.total
        while others and ((is_many := len(others) >= self.bounds.files) or total > most):
            sizes = Counter({owner: 1 if is_many else size})
            for file in others:
                sizes[file.owner] += 1 if is_many else file.size
            largest = max({file.owner for file in others}, key=lambda each: sizes[each])
            if (file := _oldest(others, largest)) is None:
                break
            _remove(others, file)
            total -= file.size

    def _files(self) -> Iterator[_File]:
        """Yield the files, new ones included; remove new files of processes that have died."""
        known, self._owners = self._owners, {}
        with os.scandir(self.path) as entries:
            for entry in entries:
                is_new = NEW.fullmatch(entry.name) is not None
                if not is_new and not self._named.fullmatch(entry.name):
                    continue
                with suppress(OSError):
                    status, path = entry.stat(follow_symlinks=False), Path(entry.path)
                    if is_new and time.time() - status.st_mtime > WRITING_S:
                        path.unlink()
                    elif stat.S_ISREG(status.st_mode):
                        key = entry.name, status.st_ino
                        owner = self._owners[key] = known.get(key) or _owner(path, self.bounds.content + MAX_OWNER)
                        yield _File(path, owner, status.st_mtime_ns, status.st_size, is_new)


def _oldest(files: list[_File], owner: str) -> _File | None:
    """Return the least recently used file of an owner."""
    return min((file for file in files if file.owner == owner), key=lambda file: file.used, default=None)


def _remove(files: list[_File], file: _File) -> None:
    with suppress(OSError):
        file.path.unlink()
    files.remove(file)


def _owner(path: Path, limit: int) -> str:
    """Return the owner of a file, "" if it names none."""
    file, first = _opened(path, limit)
    file.close()
    try:
        return str(orjson.loads(first))
    except orjson.JSONDecodeError:
        return ""


def _opened(path: Path, limit: int) -> tuple[BufferedReader, bytes]:
    """Open a file for reading; return it and its first line.

    Raises ``OSError`` for a link and everything else that is not a regular file, and for a file of more than ``limit``
    bytes. It does not wait, as for the writer of a named pipe.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
        os.close(descriptor)
        expected = f"at most {limit} bytes, got {status.st_size}" if stat.S_ISREG(status.st_mode) else "a regular file"
        raise OSError(f"expected {expected}")
    file = open(descriptor, "rb")  # noqa: SIM115 - the caller closes it
    return file, file.readline(MAX_OWNER)
