"""The file of keys: a line ``name:sha256`` for each key, as ``pullback key new NAME`` prints it."""

import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path

from app.errors import CannotStart
from pullback.keys import NAME

LINE = re.compile(rf"({NAME.pattern}):([0-9a-fA-F]{{64}})")
MAX_FILE, MAX_KEYS = 1 << 20, 1000

logger = logging.getLogger("pullback")


class KeyFile:
    """A file of keys that is read again when it changes. While it is invalid, the previous keys stay valid.

    ``digests`` has the SHA-256 of each key by its name.
    """

    def __init__(self, path: Path) -> None:
        """Read the file; raises ``CannotStart`` if that fails."""
        self._path, self._stamp = path, _stamp(path)
        try:
            self.digests = read_keys(path)
        except (OSError, ValueError) as error:
            raise CannotStart(f"PULLBACK_KEYS_FILE: {_reason(path, error)}") from error

    def refresh(self) -> bool:
        """Read the file again if it has changed; return whether it was read. Log why if it could not be."""
        # Before the file is read: a later change has another stamp.
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            self.digests = read_keys(self._path)
        except (OSError, ValueError) as error:
            logger.error("PULLBACK_KEYS_FILE: %s; the previous keys stay valid", _reason(self._path, error))
            return False
        logger.info("PULLBACK_KEYS_FILE: read %d keys again", len(self.digests))
        return True


class KeyFileCopy:
    """A copy of the last valid contents of a file of keys, for several workers: all of them know the same keys.

    A worker that starts while the file is invalid reads the same copy as the others.
    """

    def __init__(self, path: Path, copy: Path) -> None:
        """Copy the file; raises ``CannotStart`` if it is invalid, and ``OSError`` if it cannot be copied."""
        self._file, self._copy, self._is_due, self._reported = KeyFile(path), copy, False, ""
        self._write()

    def refresh(self) -> None:
        """Copy the file again if it has changed, or if a cleaner of temporary files has removed the copy.

        While that fails, as on a full disk, the workers keep the keys that they know, and the next call tries again.
        """
        self._is_due |= self._file.refresh() or not self._copy.exists()
        if self._is_due:
            try:
                self._write()
            except OSError as error:
                if str(error) != self._reported:
                    self._reported = str(error)
                    logger.error("PULLBACK_KEYS_FILE: the workers keep the previous keys: cannot copy it: %s", error)
            else:
                self._is_due, self._reported = False, ""

    def _write(self) -> None:
        self._copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        written = self._copy.with_suffix(".new")
        written.write_text("".join(f"{name}:{digest.hex()}\n" for name, digest in self._file.digests.items()))
        written.replace(self._copy)


def read_keys(path: Path) -> Mapping[str, bytes]:
    """Return the digests of a file of keys by name.

    Raises ``OSError``, and ``ValueError`` for an invalid file. Errors do not quote lines: one may be a key by mistake.
    """
    with path.open("rb") as file:
        content = file.read(MAX_FILE + 1)
    if len(content) > MAX_FILE:
        raise ValueError(f"expected at most {MAX_FILE} bytes, got more")
    digests: dict[str, bytes] = {}
    for number, line in enumerate(content.decode().splitlines(), 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        match = LINE.fullmatch(text)
        if match is None:
            raise ValueError(f"line {number}: expected NAME:SHA256, as `pullback key new NAME` prints it")
        name, digest = match[1], bytes.fromhex(match[2])
        if name in digests or digest in digests.values():
            raise ValueError(f"line {number}: expected a name and a key that no other line has")
        digests[name] = digest
    if len(digests) > MAX_KEYS:
        raise ValueError(f"expected at most {MAX_KEYS} keys, got {len(digests)}")
    return digests


def _stamp(path: Path) -> tuple[int, ...]:
    """Return values that change when the file changes; without a file, an empty tuple."""
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_size, status.st_ino


def _reason(path: Path, error: OSError | ValueError) -> str:
    match error:
        case OSError():
            return f"cannot read {path}: {error.strerror}"
        case UnicodeDecodeError():
            return f"{path}: expected UTF-8 text"
        case _:
            return f"{path}: {error}"
