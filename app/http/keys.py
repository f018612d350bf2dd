"""Keys: who may send requests, which, and how many. ``app.http.key_file`` reads the file of keys."""

import base64
import binascii
import hashlib
import hmac
import math
import secrets
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from app.errors import Forbidden, TooManyRequests, Unauthorized
from app.http.key_file import KeyFile
from pullback.keys import NOBODY, SCOPES, Grant

MAX_KEY = 512
# How often the file is examined for changes.
EXAMINE_S = 1.0
# How long a request waits for that; the file system may never answer.
WAIT_S = 0.01


class Keys:
    """The keys of a file, which is read again when it changes, and the requests in progress with each."""

    def __init__(self, path: Path, limit: int) -> None:
        """Read the file; at most ``limit`` requests with one key may be in progress in this process.

        Raises ``CannotStart`` when the file is invalid.
        """
        self._file, self._examine_at = KeyFile(path), time.monotonic() + EXAMINE_S
        self._secret, self._examining = secrets.token_bytes(32), threading.Lock()
        self._keys, self._limit, self._in_flight = self._table(), limit, dict[str, int]()
        # The end of the time, by ``time.monotonic``, that the requests with a key have used up, for keys with a rate.
        self._used_until = dict[str, float]()

    def grant_of(self, authorization: bytes) -> Grant:
        """Return what the key in an ``Authorization`` header allows; raises ``Unauthorized`` without a valid one.

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
        grant = self._keys.get(self._mac(digest), NOBODY)
        if not hmac.compare_digest(digest, grant.digest):
            raise Unauthorized("expected a known key, got an unknown one; ask the operator for a valid key")
        if time.time() >= grant.until:
            raise Unauthorized(f"expected a valid key, got {grant.name}, which has expired; ask for another one")
        return grant

    def enter(self, grant: Grant, scope: str) -> None:
        """Begin a request, which ends with ``leave``. An empty ``scope`` is that of any key.

        Raises ``Forbidden`` if its key is not for this scope, and ``TooManyRequests`` when too many have its key.
        """
        name = grant.name
        if scope:
            need_scope(grant, scope)
        if grant.most < math.inf:
            self._take(grant)
        own = self._in_flight.get(name, 0)
        if own >= self._limit:
            raise TooManyRequests(
                f"expected at most {self._limit} requests at a time with the key {name}; try again soon"
            )
        self._in_flight[name] = own + 1

    def _take(self, grant: Grant) -> None:
        """Count a request with a key that has a rate: the requests of the last period must be fewer than its most.

        Each request uses up ``period_s / most`` seconds, and the time that is used up may reach ``period_s`` ahead:
        the generic cell rate algorithm (ITU-T I.371).
        """
        now, each_s = time.monotonic(), grant.period_s / grant.most
        used_until = max(now, self._used_until.get(grant.name, 0.0)) + each_s
        if (wait_s := used_until - now - grant.period_s) > 0:
            raise TooManyRequests(
                f"expected at most {grant.most} requests in {grant.period_s} s with the key {grant.name}, got more",
                retry_after_s=math.ceil(wait_s),
            )
        self._used_until[grant.name] = used_until

    def give_back(self, name: str) -> None:
        """Do not count a request, which begins anew, for the rate of its key."""
        grant = self._file.grants.get(name, NOBODY)
        if name in self._used_until and grant.most < math.inf:
            self._used_until[name] -= grant.period_s / grant.most

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

    def _table(self) -> Mapping[bytes, Grant]:
        return {self._mac(grant.digest): grant for grant in self._file.grants.values()}


def need_scope(grant: Grant, scope: str) -> None:
    """Raise ``Forbidden`` when a key is not for this scope."""
    if scope not in grant.may:
        own = ", ".join(sorted(grant.may))
        raise Forbidden(f"expected a key for {scope} ({SCOPES[scope]}), got {grant.name}, which is for {own}")


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
