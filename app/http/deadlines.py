"""The time of requests: how long each may still take, and whether its client is still there.

One timer looks at all running requests, every few milliseconds while there are any: a timer for each would cost as much
as reading a small request.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable

from app.errors import too_late
from app.http.body import ClientGone

# How late a request may be found to be late.
TICK_S = 0.02
# Most answers are sent before; asking whether their client is still there costs them nothing.
WATCH_AFTER_S = 0.05
# How long a client may take to read its answer.
SEND_S = 60.0


class Deadline:
    """The time of one request: it cancels the request's task, and ``explain`` says why.

    It begins with the headers, before the body; ``start_work`` and ``start_send`` begin the next phases.
    """

    def __init__(
        self, disconnected: Callable[[], Awaitable[None]], began: float, at: float, too_slow: Callable[[], Exception]
    ) -> None:
        """Start, in the request's task.

        Times are the event loop's. ``disconnected`` returns when the client has left, ``too_slow`` is the error for a
        body that is not complete at the deadline.
        """
        self.at = at
        self._task, self._disconnected, self._began = asyncio.current_task(), disconnected, began
        self._until, self._error, self._watches_from = at, too_slow, math.inf
        self._watch: asyncio.Task[None] | None = None
        self._reason: Exception | None = None
        self._has_ended = False

    def start_work(self, until: float | None = None) -> None:
        """Give the work the time to ``until``, by default to the deadline; the body must have been read.

        From now on a client that leaves ends the request.
        """
        self._until, self._error = self.at if until is None else until, too_late
        self._watches_from = self._began + WATCH_AFTER_S

    def shorten(self, seconds: float) -> None:
        """Give the request, whose body has been read, at most so many seconds from its headers on."""
        self.at = min(self.at, self._began + seconds)
        self._until = min(self._until, self.at)

    def start_send(self) -> None:
        """Give the client ``SEND_S`` to read the answer."""
        self._until, self._error = asyncio.get_running_loop().time() + SEND_S, ClientGone

    def look(self, now: float) -> None:
        """End the request if its time is over."""
        if now >= self._until:
            self._end(self._error())
        elif now >= self._watches_from and self._watch is None:
            self._watch = asyncio.create_task(self._end_at_disconnect())

    def explain(self) -> None:
        """Raise the reason if this deadline cancelled the task."""
        reason, self._reason = self._reason, None
        try:
            if reason is not None and self._task and not self._task.uncancel():
                raise reason from None
        finally:
            del reason  # an error whose own frames refer to it would keep all that the request has

    def stop(self) -> None:
        """End with the request."""
        if self._watch is not None:
            self._watch.cancel()

    async def _end_at_disconnect(self) -> None:
        await self._disconnected()
        self._end(ClientGone())

    def _end(self, reason: Exception) -> None:
        if not self._has_ended and self._task:
            self._reason, self._has_ended = reason, True
            self._task.cancel()


class Deadlines:
    """The deadlines of a process."""

    def __init__(self) -> None:
        """Begin with none."""
        self._running: set[Deadline] = set()
        self._ticks = False

    def start(self, deadline: Deadline) -> None:
        """Look at a deadline from now on."""
        self._running.add(deadline)
        if not self._ticks:
            self._ticks = True
            asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def stop(self, deadline: Deadline) -> None:
        """Look at a deadline no more."""
        self._running.discard(deadline)
        deadline.stop()

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for deadline in tuple(self._running):
            deadline.look(now)
        self._ticks = bool(self._running)
        if self._ticks:
            loop.call_later(TICK_S, self._tick)
