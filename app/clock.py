"""The time of a request: one timer ends its body's coming, its work and its answer's going, and watches its client."""

import asyncio
import math
from collections.abc import Callable

from starlette.types import Receive

from app.body import ClientGone
from app.errors import DeadlinePassed

# Most answers are there before, and whether their client is costs them nothing.
WATCH_AFTER_S = 0.05


class Clock:
    """One timer for all that a request waits for: it cancels the request's task, and ``explain`` says why.

    It begins with the headers, when the body is still to come; ``working`` and ``sending`` say what comes next.
    """

    def __init__(self, receive: Receive, deadline: float, too_slow: Callable[[], Exception]) -> None:
        """Start, in the request's task; ``deadline`` is a time of the loop, ``too_slow`` what to raise at it."""
        self.deadline = deadline
        task = asyncio.current_task()
        assert task
        self._loop, self._task, self._receive = asyncio.get_running_loop(), task, receive
        self._until, self._late, self._watches_from = deadline, too_slow, math.inf
        self._watch: asyncio.Task[None] | None = None
        self._why: Exception | None = None
        self._began = self._loop.time()
        self._set(min(deadline, self._began + WATCH_AFTER_S))

    def working(self, until: float | None = None) -> None:
        """Give the work the time to ``until``, or else the deadline; the body must have been read.

        From now on a client that leaves ends the request.
        """
        self._until, self._late = self.deadline if until is None else until, _deadline_passed
        self._watches_from = self._began + WATCH_AFTER_S
        if self._rings_at > self._watches_from:
            self._ring()

    def sending(self, seconds: float) -> None:
        """Give the client so many seconds to take the answer."""
        self._until, self._late = self._loop.time() + seconds, ClientGone
        if self._until < self._rings_at:
            self._timer.cancel()
            self._set(self._until)

    def explain(self) -> None:
        """Raise, where the task was cancelled from here, why."""
        if self._why is not None and not self._task.uncancel():
            raise self._why from None

    def stop(self) -> None:
        """End with the request."""
        self._timer.cancel()
        if self._watch is not None:
            self._watch.cancel()

    def _set(self, when: float) -> None:
        self._rings_at = when
        self._timer = self._loop.call_at(when, self._ring)

    def _ring(self) -> None:
        self._timer.cancel()
        now = self._loop.time()
        if now >= self._until:
            self._end(self._late())
            return
        if now >= self._watches_from and self._watch is None:
            self._watch = self._loop.create_task(self._watched())
        if self._until < math.inf:
            self._set(self._until)

    async def _watched(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._end(ClientGone())

    def _end(self, why: Exception) -> None:
        if self._why is None:
            self._why = why
            self._task.cancel()


def _deadline_passed() -> DeadlinePassed:
    return DeadlinePassed("expected an answer before the deadline; ask for less, or for more time")
