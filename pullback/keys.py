"""Keys: how they are made, and what a line of the service's file of keys allows with its key.

    NAME:SHA256 [until=2027-06-30] [may=call,check] [rate=100/s] [compute=60/min]

``until`` is the last day on which the key is valid, in UTC. ``may`` has the scopes of the key, by default all. ``rate``
is the number of requests, and ``compute`` the seconds of computing, in each second (``s``), minute (``min``) or hour
(``h``), by default without a limit.
"""

import datetime
import hashlib
import math
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
PREFIX = "pullback_"
"""The start of every key made here, so that scanners for leaked secrets can find them."""
RANDOM_BYTES = 32
SCOPES = {
    "call": "values, derivatives, and the pages about ops",
    "check": "gradient checks",
    "post": "posting graphs and putting parameters",
    "operate": "the metrics of the service",
}
"""What a key may be for."""
PERIODS_S = {"s": 1, "min": 60, "h": 3600}
_LINE = re.compile(rf"({NAME.pattern}):([0-9a-fA-F]{{64}})")
_RATE = re.compile(rf"([1-9][0-9]{{0,8}})/({'|'.join(PERIODS_S)})")


class Rate(NamedTuple):
    """A limit: ``most`` at once, and then as fast as that many in each ``period_s``."""

    most: int
    period_s: int


@dataclass(frozen=True)
class Grant:
    """A line: the ``name`` and the SHA-256 of a key, and what it may do.

    It is valid before ``until``, in seconds since 1970. ``rate`` limits its requests, and ``compute`` the seconds that
    these compute.
    """

    line: str
    name: str
    digest: bytes
    until: float = math.inf
    may: frozenset[str] = frozenset(SCOPES)
    rate: Rate | None = None
    compute: Rate | None = None


NOBODY = Grant("", "", bytes(32))
"""The grant of no key."""


def new_key() -> str:
    """Return a new random key of 256 bits."""
    return PREFIX + secrets.token_urlsafe(RANDOM_BYTES)


def line_for(name: str, key: str, terms: Sequence[str] = ()) -> str:
    """Return the line of a key; raise ``ValueError`` for an invalid name or term."""
    if not NAME.fullmatch(name):
        expected = "expected a name of at most 64 letters, digits, '.', '_' and '-', a letter or a digit first"
        raise ValueError(f"{expected}, got {name[:80]!r}")
    return read_grant(" ".join([f"{name}:{hashlib.sha256(key.encode()).hexdigest()}", *terms])).line


def read_grant(line: str) -> Grant:
    """Read a line; raise ``ValueError`` if it is invalid. The error does not quote it: it may be a key by mistake."""
    first, *terms = line.split()
    match = _LINE.fullmatch(first)
    if match is None:
        raise ValueError("expected NAME:SHA256, as `pullback key new NAME` prints it")
    grant, seen = Grant(line, match[1], bytes.fromhex(match[2])), set[str]()
    for term in terms:
        name, _, value = term.partition("=")
        if name in seen or name not in _TERMS:
            raise ValueError(f"expected each of {', '.join(_TERMS)} once at most after NAME:SHA256")
        seen.add(name)
        grant = _TERMS[name](grant, value)
    return grant


def _until(grant: Grant, value: str) -> Grant:
    try:
        day = datetime.datetime.strptime(value, "%Y-%m-%d").replace(tzinfo=datetime.UTC)
        return replace(grant, until=(day + datetime.timedelta(days=1)).timestamp())
    except (ValueError, OverflowError):
        raise ValueError("until: expected a day, such as 2027-06-30") from None


def _may(grant: Grant, value: str) -> Grant:
    scopes = frozenset(value.split(","))
    if not scopes <= SCOPES.keys():
        raise ValueError(f"may: expected some of {','.join(SCOPES)}")
    return replace(grant, may=scopes)


def _read_rate(name: str, value: str, what: str, example: str) -> Rate:
    match = _RATE.fullmatch(value)
    if match is None:
        periods = ", ".join(PERIODS_S)
        raise ValueError(f"{name}: expected a number of {what} and a period ({periods}), such as {example}")
    return Rate(int(match[1]), PERIODS_S[match[2]])


def _rate(grant: Grant, value: str) -> Grant:
    return replace(grant, rate=_read_rate("rate", value, "requests", "100/s"))


def _compute(grant: Grant, value: str) -> Grant:
    return replace(grant, compute=_read_rate("compute", value, "seconds", "60/min"))


_TERMS: Mapping[str, Callable[[Grant, str], Grant]] = {
    **{"until": _until, "may": _may},
    **{"rate": _rate, "compute": _compute},
}
