"""Quotas: how many requests, and how many seconds of computing, each key may have, and the headers that say so.

What a request computes is known at its end. So it needs a quota that is not used up, and may overdraw it; then the next
request waits until that is paid.
"""

import math
from functools import lru_cache

from app.errors import TooManyRequests
from app.http.buckets import Buckets
from app.http.problems import Header
from app.telemetry.accounts import Account
from pullback.keys import Grant, Rate

QUOTA_HEADERS, UNIT = ("RateLimit-Policy", "RateLimit"), "compute-seconds"


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
