"""The time of requests: how long each may still take, and whether its client is still there.

One timer looks at all of them, again and again while there are any: a timer for each would cost as much as to read a
small request.
"""

import asyncio
import math
from collections.abc import Callable

from starlette.types import Receive

from app.errors import too_late
from app.http.body import ClientGone

# How late a request may be found to be late.
TICK_S = 0.02
# Most answers are there before, and whether their client is costs them nothing.
WATCH_AFTER_S = 0.05
# What a client may take to read its answer.
SEND_S = 60.0


class Deadline:
    """The time of one request: it cancels the request's task, and ``explain`` says why.

    It begins with the headers, when the body is still to come; ``working`` and ``sending`` say what comes next.
    """

    def __init__(self, receive: Receive, now: float, deadline: float, too_slow: Callable[[], Exception]) -> None:
        """Start, in the request's task; times are the loop's, ``too_slow`` is what to raise at the deadline."""
        self.deadline = deadline
        self._task, self._receive, self._began = asyncio.current_task(), receive, now
        self._until, self._late, self._watches_from = deadline, too_slow, math.inf
        self._watch: asyncio.Task[None] | None = None
        self._why: Exception | None = None
        self._has_ended = False

    def working(self, until: float | None = None) -> None:
        """Give the work the time to ``until``, or else the deadline; the body must have been read.

        From now on a client that leaves ends the request.
        """
        self._until, self._late = self.deadline if until is None else until, too_late
        self._watches_from = self._began + WATCH_AFTER_S

    def shorten(self, seconds: float) -> None:
        """Give the request, whose body has been read, at most so many seconds from its headers on."""
        self.deadline = min(self.deadline, self._began + seconds)
        self._until = min(self._until, self.deadline)

    def sending(self, seconds: float = SEND_S) -> None:
        """Give the client so many seconds to take the answer."""
        self._until, self._late = asyncio.get_running_loop().time() + seconds, ClientGone

    def look(self, now: float) -> None:
        """End the request when it is time to."""
        if now >= self._until:
            self._end(self._late())
        elif now >= self._watches_from and self._watch is None:
            self._watch = asyncio.create_task(self._watched())

    def explain(self) -> None:
        """Raise, where the task was cancelled from here, why."""
        why, self._why = self._why, None
        try:
            if why is not None and self._task and not self._task.uncancel():
                raise why from None
        finally:
            del why  # an error that its own frames hold would keep all that the request has

    def stop(self) -> None:
        """End with the request."""
        if self._watch is not None:
            self._watch.cancel()

    async def _watched(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._end(ClientGone())

    def _end(self, why: Exception) -> None:
        if not self._has_ended and self._task:
            self._why, self._has_ended = why, True
            self._task.cancel()


class Deadlines:
    """The clocks of a process."""

    def __init__(self) -> None:
        """Begin with none."""
        self._running: set[Deadline] = set()
        self._ticks = False

    def start(self, clock: Deadline) -> None:
        """Look at a clock from now on."""
        self._running.add(clock)
        if not self._ticks:
            self._tick()

    def stop(self, clock: Deadline) -> None:
        """Look at it no more."""
        self._running.discard(clock)
        clock.stop()

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for clock in tuple(self._running):
            clock.look(now)
        self._ticks = bool(self._running)
        if self._ticks:
            loop.call_later(TICK_S, self._tick)
