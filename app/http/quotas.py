"""Quotas: how many requests, and how many seconds of computing, each key may have, and the headers that say so.

What a request computes is known at its end. So it needs a quota that is not used up, and may overdraw it; then the next
request waits until that is paid.
"""

import fcntl
import math
import mmap
import os
import struct
import time
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

import numpy as np

from app.errors import CannotStart, TooManyRequests
from app.http.problems import Header
from app.telemetry.accounts import Account
from pullback.keys import Grant, Rate

# A slot is the digest of a name and the time. The bucket that is full for the longest time makes room for a new one.
DIGEST, SLOTS = 16, 4096
SLOT = struct.Struct(f"={DIGEST}sd")
_TIME = struct.Struct("=d")
# How often the lock is tried. A process holds it for microseconds, unless the system stops it meanwhile: then a use is
# counted without the lock, because the event loop must not wait.
TRIES = 200
QUOTA_HEADERS, UNIT = ("RateLimit-Policy", "RateLimit"), "compute-seconds"


# A bucket is the time until which it is used up, and each use moves this time on: the generic cell rate algorithm
# (ITU-T I.371). The time is that of ``time.monotonic``, which all processes of a machine share, and which does not
# step when somebody sets the clock.
class Buckets:
    """Buckets by name, shared by the processes that use the same file."""

    def __init__(self, path: Path | None = None) -> None:
        """Use the file, which is made if it is missing; without one, the buckets are those of this process alone.

        Raises ``CannotStart`` if the disk has no room for the file.
        """
        size, self._file = SLOTS * SLOT.size, -1
        try:
            if path is not None:
                self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                # Now, because a write to memory that the disk has no room for would end the process.
                os.posix_fallocate(self._file, 0, size)
            self._memory = mmap.mmap(self._file, size)
        except OSError as error:
            raise CannotStart(f"cannot keep the limits of keys in {path}: {error.strerror}") from error
        self._known = dict[str, tuple[bytes, int]]()

    def use(self, name: str, seconds: float, most_s: float = math.inf) -> float:
        """Use a bucket for so many more seconds, and return 0; or, if they end in more than ``most_s``, how long after.

        Then nothing is used.
        """
        is_locked = self._lock()
        try:
            at, now = self._time_of(name), time.monotonic()
            until = max(now, _TIME.unpack_from(self._memory, at)[0]) + seconds
            if (over_s := until - now - most_s) > 0:
                return over_s
            _TIME.pack_into(self._memory, at, until)
        finally:
            self._unlock(is_locked)
        return 0.0

    def give_back(self, name: str, seconds: float) -> None:
        """Undo a use."""
        is_locked = self._lock()
        try:
            at = self._time_of(name)
            _TIME.pack_into(self._memory, at, _TIME.unpack_from(self._memory, at)[0] - seconds)
        finally:
            self._unlock(is_locked)

    def used_s(self, name: str) -> float:
        """Return for how many seconds a bucket is used up."""
        is_locked = self._lock()
        try:
            return max(0.0, _TIME.unpack_from(self._memory, self._time_of(name))[0] - time.monotonic())
        finally:
            self._unlock(is_locked)

    def _lock(self) -> bool:
        """Try to lock the file, if there is one."""
        for _ in range(TRIES if self._file >= 0 else 0):
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            return True
        return False

    def _unlock(self, is_locked: bool) -> None:
        if is_locked:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _time_of(self, name: str) -> int:
        """Return where the time of a bucket is; a new bucket is not used."""
        digest, at = self._known.get(name, (b"", -1))
        # Another bucket may have taken the slot.
        if at < 0 or self._memory[at : at + DIGEST] != digest:
            digest = blake2b(name.encode(), digest_size=DIGEST).digest()
            at = self._memory.find(digest)
            if at < 0:
                times = np.frombuffer(self._memory, [("digest", f"V{DIGEST}"), ("until", "=f8")])["until"]
                at = int(times.argmin()) * SLOT.size
                SLOT.pack_into(self._memory, at, digest, time.monotonic())
            if len(self._known) >= SLOTS:
                self._known.clear()
            self._known[name] = digest, at
        return at + DIGEST


class Quotas:
    """The quotas of the keys of a service, in ``buckets``."""

    def __init__(self, buckets: Buckets) -> None:
        """Keep them there."""
        self._buckets = buckets

    def take(self, grant: Grant, account: Account) -> None:
        """Count a request; raises ``TooManyRequests`` if a quota of its key is used up."""
        if (compute := grant.compute) is not None:
            self.charge(grant, account)
            if over_s := self._buckets.use(_compute(grant), 0.0, compute.period_s):
                raise _refusal(grant, "seconds of computing", compute, over_s, "compute")
        if (rate := grant.rate) is not None:
            each_s = rate.period_s / rate.most
            if over_s := self._buckets.use(grant.name, each_s, rate.period_s):
                raise _refusal(grant, "requests", rate, over_s, "rate")

    def give_back(self, grant: Grant) -> None:
        """Do not count a request, which begins anew."""
        if grant.rate is not None:
            self._buckets.give_back(grant.name, grant.rate.period_s / grant.rate.most)

    def charge(self, grant: Grant, account: Account) -> None:
        """Count what the requests of a key have computed since the last call."""
        owed_s = account.owed()
        if owed_s > 0 and grant.compute is not None:
            self._buckets.use(_compute(grant), owed_s * grant.compute.period_s / grant.compute.most)

    def headers(self, grant: Grant) -> tuple[Header, Header]:
        """Return the headers of a response to a request with a key that has quotas: these, and what is left of them.

        They are those of draft-ietf-httpapi-ratelimit-headers.
        """
        left: list[str] = []
        if (rate := grant.rate) is not None:
            left.append(f'"requests";{_left(rate, self._buckets.used_s(grant.name), rate.period_s / rate.most)}')
        if (rate := grant.compute) is not None:
            left.append(f'"compute";{_left(rate, self._buckets.used_s(_compute(grant)), 0.0)}')
        return _policy(grant.rate, grant.compute), (b"ratelimit", ", ".join(left).encode())


@lru_cache
def _policy(rate: Rate | None, compute: Rate | None) -> Header:
    requests = [] if rate is None else [f'"requests";q={rate.most};w={rate.period_s}']
    seconds = [] if compute is None else [f'"compute";q={compute.most};w={compute.period_s};qu="{UNIT}"']
    return b"ratelimit-policy", ", ".join(requests + seconds).encode()


def _compute(grant: Grant) -> str:
    """Return the name of the bucket of computing; no key has such a name."""
    return f"{grant.name} compute"


def _left(rate: Rate, used_s: float, needed_s: float) -> str:
    """Return what is left, and the seconds until a request is allowed, or until all is left if one is now.

    A request needs ``needed_s`` of the period.
    """
    over_s = used_s + needed_s - rate.period_s
    left = max(0, int((rate.period_s - used_s) * rate.most / rate.period_s + 1e-6))
    return f"r={left};t={math.ceil(over_s if over_s > 0 else used_s)}"


def _refusal(grant: Grant, what: str, rate: Rate, over_s: float, name: str) -> TooManyRequests:
    return TooManyRequests(
        f"expected at most {rate.most} {what} in {rate.period_s} s with the key {grant.name}, got more",
        retry_after_s=math.ceil(over_s),
        refusal=name,
    )
