"""The ops that must not run now, because they have crashed a process of this service."""

import math
import time
from collections.abc import Iterator
from typing import NamedTuple

from app.errors import Overloaded
from ops import Op


class Refusal(NamedTuple):
    """Why an op does not run, and until when, a time of ``time.time``."""

    reason: str
    until: float


REFUSED: dict[str, Refusal] = {}
"""The refusal of each op by its name."""


def require_allowed(op: Op) -> None:
    """Raise ``Overloaded`` for a registered op, or a graph, that must not run now.

    Call it only while ``REFUSED`` has any, so that it costs nothing otherwise.
    """
    if (name := refused(op)) and (refusal := REFUSED.get(name)):
        wait_s = max(1, math.ceil(refusal.until - time.time()))
        raise Overloaded(f"op {name} is unavailable for {wait_s} s: {refusal.reason}", retry_after_s=wait_s)


def refused(op: Op) -> str:
    """Return the name of the op that must not run now: this one, or one that a graph composes; "" if it may run."""
    return next((name for name in _names(op) if name in REFUSED), "")


def _names(op: Op) -> Iterator[str]:
    yield op.name
    for part in op.parts:
        yield part.owner
        yield from _names(part)
