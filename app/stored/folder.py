"""A folder of posted things, which all processes of a service on one host share: a file for each.

A file is named by a digest of its content. Its first line is the owner of the thing, and the rest the content. Its time
of change is that of its last use. Nothing in it is trusted: only regular files of a bounded size are read, and a
content counts only under the name that follows from it.
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
# A new file that nobody has written to for so long was left by a process that died.
WRITING_S = 60.0


@dataclass(frozen=True)
class Bounds:
    """The most files of a folder, and the most bytes of one content, of all files of an owner, and of all files."""

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
    """A file that is being written: its path, and the file, which is behind its first line."""

    path: Path
    file: BinaryIO

    def drop(self) -> None:
        """Close the file, and remove it unless it was kept."""
        with suppress(OSError):
            self.file.close()
        self.path.unlink(missing_ok=True)


class SharedFolder:
    """A folder of ``noun``; without a ``path``, one of this process, which ``close`` removes.

    ``named`` matches the names of its files. Its methods may block as long as the file system does.
    """

    def __init__(self, path: Path | None, noun: str, named: str, bounds: Bounds) -> None:
        """Take a folder; it is made for the first file."""
        self._is_own, self._noun, self.bounds = path is None, noun, bounds
        self._named = re.compile(named)
        self.path = path or Path(tempfile.gettempdir(), f"pullback-{noun}-{secrets.token_hex(8)}")
        self._owners: dict[tuple[str, int], str] = {}

    def close(self) -> None:
        """Remove the folder if it is that of this process."""
        if self._is_own:
            shutil.rmtree(self.path, ignore_errors=True)

    def use_file(self, name: str) -> bool:
        """Note that a file is used; return whether it is still there."""
        try:
            os.utime(self.path / name, follow_symlinks=False)
        except FileNotFoundError:
            return False
        except OSError:
            return True  # a folder that may only be read
        return True

    def open_file(self, name: str) -> tuple[BufferedReader, str]:
        """Return a file, behind its first line, and its owner; raises ``OSError`` for what is none of this folder."""
        file, first = _opened(self.path / name, self.bounds.content + MAX_OWNER)
        with suppress(orjson.JSONDecodeError):
            return file, str(orjson.loads(first))
        file.close()
        raise OSError("expected an owner in the first line")

    def names(self, owner: str, prefix: str) -> Iterator[str]:
        """Yield the names of the files of an owner that begin with a prefix, the last used first."""
        with suppress(OSError):
            files = sorted(self._files(), key=lambda file: -file.used)
            yield from (
                file.path.name
                for file in files
                if not file.is_new and file.owner == owner and file.path.name.startswith(prefix)
            )

    def begin(self, name: str, owner: str, size: int) -> NewFile:
        """Return a new file with room for so many bytes, which gets a name that matches ``named`` when it is kept.

        The least used files of the owner make room for it, and then those of the owner with the most. Where the disk is
        full, as many bytes go as come. Raises ``OSError``.
        """
        first = orjson.dumps(owner) + b"\n"
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._make_room(name, owner, len(first) + size)
        try:
            return self._begin(name, first, size)
        except OSError as error:
            if error.errno not in FULL:
                raise
            self._make_room(name, owner, len(first) + size, is_full=True)
            return self._begin(name, first, size)

    def keep(self, new: NewFile, name: str) -> None:
        """Give a new file its name, in place of any other file; raises ``OSError``."""
        new.file.close()
        new.path.replace(self.path / name)

    def refused(self, error: OSError) -> Overloaded:
        """Log an error of writing a file, and return that for the client."""
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
            # Now, because the disk may be full. Until it is kept, others count the file as large as it will be.
            if size:
                os.posix_fallocate(new.file.fileno(), 0, len(first) + size)
            new.file.write(first)
        except OSError:
            new.drop()
            raise
        return new

    def _make_room(self, name: str, owner: str, size: int, *, is_full: bool = False) -> None:
        """Remove files until there is room for one of ``size`` bytes; if the disk ``is_full``, as much."""
        others = [file for file in self._files() if file.path.name != name]
        own = size + sum(file.size for file in others if file.owner == owner)
        while own > self.bounds.of_owner and (file := _oldest(others, owner)) is not None:
            _remove(others, file)
            own -= file.size
        most = sum(file.size for file in others)
        total, most = size + most, min(most, self.bounds.total) if is_full else self.bounds.total
        while (is_many := len(others) >= self.bounds.files) or total > most:
            sizes = Counter[str]()
            for file in others:
                if not file.is_new:
                    sizes[file.owner] += 1 if is_many else file.size
            file = _oldest(others, max(sizes, key=lambda each: sizes[each])) if sizes else None
            if file is None:
                break
            _remove(others, file)
            total -= file.size
        if own > self.bounds.of_owner or total > self.bounds.total:
            raise OSError(errno.EDQUOT, "other uploads are in progress")

    def _files(self) -> Iterator[_File]:
        """Yield the files of the folder, also new ones, and remove what dead processes have left there."""
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
    """Return the least used file of an owner that is not being written."""
    return min(
        (file for file in files if file.owner == owner and not file.is_new), key=lambda file: file.used, default=None
    )


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
    """Return an open file, and its first line.

    Raises ``OSError`` for a link, for anything else that is no regular file, without waiting for it, and for a file
    that is larger.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
        os.close(descriptor)
        expected = f"at most {limit} bytes, got {status.st_size}" if stat.S_ISREG(status.st_mode) else "a regular file"
        raise OSError(f"expected {expected}")
    file = open(descriptor, "rb")  # noqa: SIM115 - the caller closes it
    return file, file.readline(MAX_OWNER)
