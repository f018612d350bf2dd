"""The progress of a request. A job has a follower, which receives it; other requests have none."""

from contextvars import ContextVar
from typing import Protocol

from app.execution.calls import Call


class Follower(Protocol):
    """Receives the progress of a request."""

    def progress(self, done: int, total: int) -> None:
        """Receive how many of the ``total`` parts of the work are ``done``."""
        ...

    def portion(self, call: Call) -> None:
        """Receive a call after each portion of its ``Portioned`` work."""
        ...


FOLLOWER: ContextVar[Follower | None] = ContextVar("follower", default=None)
"""The follower of the request that this task answers."""


def note_progress(done: int, total: int) -> None:
    """Tell the follower of this request, if it has one, how much is done."""
    if (follower := FOLLOWER.get()) is not None:
        follower.progress(done, total)


def note_portion(call: Call) -> None:
    """Tell the follower of this request, if it has one, that a portion is done."""
    if (follower := FOLLOWER.get()) is not None:
        follower.portion(call)
