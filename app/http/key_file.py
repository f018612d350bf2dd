"""The file of keys: a line for each key, as ``pullback key new NAME`` prints it."""

import logging
import os
from collections.abc import Mapping
from pathlib import Path

from app.errors import CannotStart
from pullback.keys import Grant, read_grant

MAX_FILE, MAX_KEYS = 1 << 20, 1000

logger = logging.getLogger("pullback")
# The paths of probes, which have no key and use addresses as the host.
HEALTH = "/health/"
# The pages of the explorer need no key. They ask the user for one, and send it with each request for data.
EXPLORER = "/explore"
# The path of language models' tools, each of which has a scope.
TOOLS = "/mcp"
JOBS = "/v1/jobs"


class KeyFile:
    """A file of keys that is read again when it changes. While it is invalid, the previous keys stay valid.

    ``grants`` are those of the keys by their names.
    """

    def __init__(self, path: Path) -> None:
        """Read the file; raises ``CannotStart`` if that fails."""
        self._path, self._stamp = path, _stamp(path)
        try:
            self.grants = read_keys(path)
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
            self.grants = read_keys(self._path)
        except (OSError, ValueError) as error:
            logger.error("PULLBACK_KEYS_FILE: %s; the previous keys stay valid", _reason(self._path, error))
            return False
        logger.info("PULLBACK_KEYS_FILE: read %d keys again", len(self.grants))
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
        written.write_text("".join(f"{grant.line}\n" for grant in self._file.grants.values()))
        written.replace(self._copy)


def read_keys(path: Path) -> Mapping[str, Grant]:
    """Return the grants of a file of keys by the names of the keys.

    Raises ``OSError``, and ``ValueError`` for an invalid file.
    """
    with path.open("rb") as file:
        content = file.read(MAX_FILE + 1)
    if len(content) > MAX_FILE:
        raise ValueError(f"expected at most {MAX_FILE} bytes, got more")
    grants, digests = dict[str, Grant](), set[bytes]()
    for number, line in enumerate(content.decode().splitlines(), 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        try:
            grant = read_grant(text)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
        if grant.name in grants or grant.digest in digests:
            raise ValueError(f"line {number}: expected a name and a key that no other line has")
        grants[grant.name] = grant
        digests.add(grant.digest)
    if len(grants) > MAX_KEYS:
        raise ValueError(f"expected at most {MAX_KEYS} keys, got {len(grants)}")
    return grants


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


def scope_of(method: str, path: str) -> str:
    """Return the scope of a request, empty if its route asks for that of what the body names."""
    # A key finds only its own jobs, of requests for which it had the scope.
    if path in (TOOLS, JOBS) or path.startswith(f"{JOBS}/"):
        return ""
    if path == "/metrics":
        return "operate"
    if method not in ("GET", "HEAD") and (path == "/v1/graphs" or path.startswith("/v1/graphs/")):
        return "post"
    if method not in ("GET", "HEAD") and path.startswith("/v1/ops/") and path.endswith("/parameters"):
        return "post"
    if path == "/v1/checks" or (path.startswith("/v1/ops/") and path.endswith(("/check", "/verify"))):
        return "check"
    return "call"


def needs_key(path: str) -> bool:
    """Return whether a path needs a key where the service has keys."""
    return not path.startswith((HEALTH, f"{EXPLORER}/")) and path not in ("/", EXPLORER)
