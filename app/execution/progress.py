"""The progress of a request. A job has a follower, which receives it; other requests have none."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeAlias

Follower: TypeAlias = Callable[[int, int], None]
"""Receives how many of the parts of the work are done, and how many there are."""

FOLLOWER: ContextVar[Follower | None] = ContextVar("follower", default=None)
"""The follower of the request that this task answers."""


def note_progress(done: int, total: int) -> None:
    """Tell the follower of this request, if it has one, how much is done."""
    if (follower := FOLLOWER.get()) is not None:
        follower(done, total)
