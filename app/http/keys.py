"""Keys: who may send requests, which, and how many. ``app.http.key_file`` reads the file of keys."""

import base64
import binascii
import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from app.errors import OutOfScope, TooManyRequests, Unauthorized
from app.http.key_file import KeyFile
from app.http.problems import Header
from app.http.quotas import Buckets, Quotas
from app.settings import Settings
from app.telemetry.accounts import Account, Accounts
from pullback.keys import NOBODY, SCOPES, Grant

MAX_KEY = 512
# How often the file is examined for changes.
EXAMINE_S = 1.0
# How long a request waits for that; the file system may never answer.
WAIT_S = 0.01


class Keys:
    """The keys of a file, which is read again when it changes, and the requests in progress with each."""

    def __init__(self, path: Path, limit: int, accounts: Accounts, buckets: Buckets) -> None:
        """Read the file; at most ``limit`` requests with one key may be in progress in this process.

        ``accounts`` count what each key uses, and ``keyless`` counts what requests without a valid key use; ``buckets``
        hold the quotas. Raises ``CannotStart`` when the file is invalid.
        """
        self._file, self._examine_at = KeyFile(path), time.monotonic() + EXAMINE_S
        self._secret, self._examining = secrets.token_bytes(32), threading.Lock()
        self._keys, self._limit = self._table(), limit
        self._accounts, self._quotas, self.keyless = accounts, Quotas(buckets), accounts.keyless

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
            expired = f"expected a valid key, got {grant.name}, which has expired; ask for another one"
            raise Unauthorized(expired, refusal="expired")
        return grant

    def account_of(self, name: str) -> Account:
        """Return the account of the key with a name."""
        return self._accounts.of(name)

    def enter(self, grant: Grant, scope: str) -> Account:
        """Begin a request, which ends with ``leave``; return its account. An empty ``scope`` is that of any key.

        Raises ``Forbidden`` if its key is not for this scope, and ``TooManyRequests`` when too many have its key, or
        have had it.
        """
        account = self._accounts.of(grant.name)
        if scope:
            need_scope(grant, scope)
        if account.in_flight >= self._limit:
            raise TooManyRequests(
                f"expected at most {self._limit} requests at a time with the key {grant.name}; try again soon",
                refusal="in_flight",
            )
        self._quotas.take(grant, account)
        account.in_flight += 1
        return account

    def give_back(self, grant: Grant) -> None:
        """Do not count a request, which begins anew, for the rate of its key."""
        self._quotas.give_back(grant)

    def leave(self, grant: Grant, account: Account) -> None:
        """End a request."""
        account.in_flight -= 1
        self._quotas.charge(grant, account)

    def charge(self, name: str, compute_s: float) -> None:
        """Count what a job of a key has computed."""
        account = self._accounts.of(name)
        account.add(0.0, compute_s)
        if (grant := self._file.grants.get(name)) is not None:
            self._quotas.charge(grant, account)

    def headers(self, grant: Grant, account: Account) -> tuple[Header, ...]:
        """Return the headers of a response with the quotas of its key, and what is left of them."""
        if grant.rate is None and grant.compute is None:
            return ()
        self._quotas.charge(grant, account)
        return self._quotas.headers(grant)

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


def keys_of(settings: Settings, accounts: Accounts) -> Keys | None:
    """Return the keys of the settings, ``None`` if none is needed. Raises ``CannotStart`` when the file is invalid."""
    if settings.keys_file is None:
        return None
    # Several workers read a copy of the file, in a folder of theirs.
    buckets = Buckets(settings.keys_file.with_name("buckets") if settings.workers > 1 else None)
    return Keys(settings.keys_file, settings.key_inflight, accounts, buckets)


def need_scope(grant: Grant, scope: str) -> None:
    """Raise ``OutOfScope`` when a key is not for this scope."""
    if scope not in grant.may:
        own = ", ".join(sorted(grant.may))
        raise OutOfScope(f"expected a key for {scope} ({SCOPES[scope]}), got {grant.name}, which is for {own}")


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
