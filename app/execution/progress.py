"""How far the work of a request has got, for who follows it: a job has a follower, and other requests have none."""

from contextvars import ContextVar
from typing import Protocol

from app.execution.calls import Call


class Follower(Protocol):
    """Is told how far the work of a request has got."""

    def progress(self, done: int, total: int) -> None:
        """So many of the parts of the work are done."""
        ...

    def portion(self, call: Call) -> None:
        """A portion of ``Portioned`` work is done."""
        ...


FOLLOWER: ContextVar[Follower | None] = ContextVar("follower", default=None)
"""Who follows the request that this task answers."""


def note_progress(done: int, total: int) -> None:
    """Tell the follower of this request, if it has one, how much is done."""
    if (follower := FOLLOWER.get()) is not None:
        follower.progress(done, total)


def note_portion(call: Call) -> None:
    """Tell the follower of this request, if it has one, that a portion is done."""
    if (follower := FOLLOWER.get()) is not None:
        follower.portion(call)
