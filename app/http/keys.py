"""Keys: who may send requests, and how many at once.

The file of keys has a line ``name:sha256`` for each key, as ``pullback key new NAME`` prints it. It is read again when
it changes. While the new contents are invalid, the previous keys stay valid.
"""

import base64
import binascii
import hashlib
import hmac
import logging
import os
import re
import secrets
import time
from collections.abc import Mapping
from pathlib import Path

from app.errors import CannotStart, TooManyRequests, Unauthorized
from app.http.request import HEALTH, Handler, Request
from pullback.keys import NAME

LINE = re.compile(rf"({NAME.pattern}):([0-9a-fA-F]{{64}})")
MAX_FILE, MAX_KEYS, MAX_KEY = 1 << 20, 1000, 512
# How often the file is examined for changes.
EXAMINE_S = 1.0
NOBODY = ("", bytes(32))

logger = logging.getLogger("pullback")


class Keys:
    """The keys of the requests in progress in this process."""

    def __init__(self, path: Path, limit: int) -> None:
        """Read the file of keys; at most ``limit`` requests with one key may be in progress.

        Raises ``CannotStart`` when the file is invalid.
        """
        self._file, self._limit, self._in_flight = KeyFile(path), limit, dict[str, int]()

    def name_of(self, authorization: bytes) -> str:
        """Return the name of the key in an ``Authorization`` header; raises ``Unauthorized`` without a valid one."""
        return self._file.name_of(presented_key(authorization))

    def enter(self, name: str) -> None:
        """Begin a request, which ends with ``leave``; raises ``TooManyRequests`` when too many have the same key."""
        own = self._in_flight.get(name, 0)
        if own >= self._limit:
            raise TooManyRequests(
                f"expected at most {self._limit} requests at a time with the key {name}; try again soon"
            )
        self._in_flight[name] = own + 1

    def leave(self, name: str) -> None:
        """End a request."""
        self._in_flight[name] -= 1
        if not self._in_flight[name]:
            del self._in_flight[name]


def with_key(keys: Keys, handler: Handler) -> Handler:
    """Return ``handler`` for requests with a key only; ``/health/`` needs none.

    The handler raises ``Unauthorized`` and ``TooManyRequests`` as ``keys`` do.
    """

    async def handle(request: Request) -> None:
        if request.path.startswith(HEALTH):
            await handler(request)
            return
        request.key = name = keys.name_of(request.headers.get(b"authorization", b""))
        keys.enter(name)
        try:
            await handler(request)
        finally:
            keys.leave(name)

    return handle


class KeyFile:
    """A file of keys, which is read again when it changes."""

    def __init__(self, path: Path) -> None:
        """Read the file; raises ``CannotStart`` if that fails."""
        self._path, self._stamp, self._examine_at = path, _stamp(path), time.monotonic() + EXAMINE_S
        self._secret = secrets.token_bytes(32)
        try:
            self._keys = self._read()
        except (OSError, ValueError) as error:
            raise CannotStart(f"PULLBACK_KEYS_FILE: {_reason(path, error)}") from error

    def name_of(self, key: bytes) -> str:
        """Return the name of a key; raises ``Unauthorized`` for an unknown one, and for none at all."""
        if time.monotonic() >= self._examine_at:
            self._refresh()
        if not key:
            raise Unauthorized("expected a key, as 'Authorization: Bearer KEY', got none; ask the operator for one")
        digest = hashlib.sha256(key).digest()
        name, known = self._keys.get(self._mac(digest), NOBODY)
        if not hmac.compare_digest(digest, known):
            raise Unauthorized("expected a known key, got an unknown one; ask the operator for a valid key")
        return name

    def _mac(self, digest: bytes) -> bytes:
        """Return the place of a digest in the table, which callers cannot predict: so its time tells them nothing."""
        return hashlib.blake2b(digest, key=self._secret).digest()

    def _read(self) -> Mapping[bytes, tuple[str, bytes]]:
        return {self._mac(digest): (name, digest) for name, digest in read_keys(self._path).items()}

    def _refresh(self) -> None:
        self._examine_at = time.monotonic() + EXAMINE_S
        # Before the file is read: a later change has another stamp.
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._keys = self._read()
        except (OSError, ValueError) as error:
            logger.error("PULLBACK_KEYS_FILE: %s; the previous keys stay valid", _reason(self._path, error))
        else:
            logger.info("PULLBACK_KEYS_FILE: read %d keys again", len(self._keys))


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


def presented_key(authorization: bytes) -> bytes:
    """Return the key in an ``Authorization`` header, empty if there is none.

    Browsers, and clients that cannot set headers, send a key as the password of the Basic scheme.
    """
    scheme, _, value = authorization.partition(b" ")
    key = value.strip()
    match scheme.lower():
        case b"bearer":
            pass
        case b"basic":
            try:
                key = base64.b64decode(key, validate=True).partition(b":")[2]
            except binascii.Error:
                key = b""
        case _:
            key = b""
    return key if len(key) <= MAX_KEY else b""


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
