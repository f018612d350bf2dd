"""Keys: who may send requests, and how many at once. ``app.http.key_file`` reads the file of keys."""

import base64
import binascii
import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from app.errors import TooManyRequests, Unauthorized
from app.http.key_file import KeyFile

MAX_KEY = 512
# How often the file is examined for changes.
EXAMINE_S = 1.0
# How long a request waits for that; the file system may never answer.
WAIT_S = 0.01
NOBODY = ("", bytes(32))


class Keys:
    """The keys of a file, which is read again when it changes, and the requests in progress with each."""

    def __init__(self, path: Path, limit: int) -> None:
        """Read the file; at most ``limit`` requests with one key may be in progress in this process.

        Raises ``CannotStart`` when the file is invalid.
        """
        self._file, self._examine_at = KeyFile(path), time.monotonic() + EXAMINE_S
        self._secret, self._examining = secrets.token_bytes(32), threading.Lock()
        self._keys, self._limit, self._in_flight = self._table(), limit, dict[str, int]()

    def name_of(self, authorization: bytes) -> str:
        """Return the name of the key in an ``Authorization`` header; raises ``Unauthorized`` without a valid one.

        A thread reads the file if it has changed; the request waits for it, but not longer than ``WAIT_S``.
        """
        if time.monotonic() >= self._examine_at:
            self._examine_at = time.monotonic() + EXAMINE_S
            if self._examining.acquire(blocking=False):  # no thread still waits for the file system
                thread = threading.Thread(target=self._examine, name="keys", daemon=True)
                thread.start()
                thread.join(WAIT_S)
        key = presented_key(authorization)
        if not key:
            raise Unauthorized("expected a key, as 'Authorization: Bearer KEY', got none; ask the operator for one")
        digest = hashlib.sha256(key).digest()
        name, known = self._keys.get(self._mac(digest), NOBODY)
        if not hmac.compare_digest(digest, known):
            raise Unauthorized("expected a known key, got an unknown one; ask the operator for a valid key")
        return name

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

    def _examine(self) -> None:
        """Read the file if it has changed."""
        try:
            if self._file.refresh():
                self._keys = self._table()
        finally:
            self._examining.release()

    def _mac(self, digest: bytes) -> bytes:
        """Return the key of a digest in the table; callers cannot predict it, so its time tells nothing."""
        return hashlib.blake2b(digest, key=self._secret).digest()

    def _table(self) -> Mapping[bytes, tuple[str, bytes]]:
        return {self._mac(digest): (name, digest) for name, digest in self._file.digests.items()}


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
