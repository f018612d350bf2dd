"""Deadlines: how long each request may still take, and whether its client is still connected.

One timer checks all running requests, every few milliseconds while there are any: a timer per request would cost as
much as reading a small request.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable

from app.errors import too_late, wrong
from app.http.body import MAX_DIGITS, ClientGone

DEADLINE_HEADER = "Pullback-Deadline-Ms"
# How often deadlines are checked, and so by how much a request may overrun.
TICK_S = 0.02
# Most responses are sent by then, so they do not pay for watching the connection.
WATCH_AFTER_S = 0.05
# How often the rate at which a client reads the response is measured, and so how long it may pause.
SEND_S = 60.0
# The least rate, in bytes per second.
READ_RATE = 16 << 10


class Deadline:
    """The deadline of one request: it cancels the request's task, and ``explain`` raises the reason.

    It starts before the body; ``start_work`` and ``start_send`` start the next phases.
    """

    def __init__(
        self,
        deadlines: "Deadlines",
        allowed_s: float,
        disconnected: Callable[[], Awaitable[None]],
        too_slow: Callable[[], Exception],
        began: float,
    ) -> None:
        """Start, in the request's task: it may take ``allowed_s`` seconds from ``began``, a time of ``perf_counter``.

        ``deadlines`` checks it until ``stop``. ``at`` is the deadline on the event loop's clock. ``disconnected``
        returns when the client has disconnected, and ``too_slow`` returns the error for a body that is incomplete at
        the deadline.
        """
        loop = asyncio.get_running_loop()
        self._began, self.allowed_s = loop.time() - (time.perf_counter() - began), allowed_s
        self.at = self._until = self._began + allowed_s
        self._task, self._disconnected = asyncio.current_task(), disconnected
        self._error, self._watches_from = too_slow, math.inf
        self._watch: asyncio.Task[None] | None = None
        self._taken: Callable[[], int] | None = None
        self._taken_before: float = -math.inf
        self._least = READ_RATE * SEND_S
        self._reason: Exception | None = None
        self._has_ended = False
        self._running = deadlines.running
        self._running.add(self)
        if not deadlines.is_ticking:
            deadlines.is_ticking = True
            loop.call_later(TICK_S, deadlines.tick)

    def start_work(self, until: float | None = None) -> None:
        """Allow the work to last until ``until``, by default the deadline; the body must have been read.

        From now on the request ends when its client disconnects.
        """
        self._until, self._error = self.at if until is None else until, too_late
        self._watches_from = self._began + WATCH_AFTER_S

    def shorten(self, seconds: float) -> None:
        """Limit the request to ``seconds`` after it began; the body must have been read."""
        self.allowed_s = min(self.allowed_s, seconds)
        self.at = self._began + self.allowed_s
        self._until = min(self._until, self.at)

    def start_send(self, taken: Callable[[], int]) -> None:
        """Let the client read the response; ``taken`` returns how many bytes of it have arrived there so far.

        The request ends when these are too few in a period of ``SEND_S``. The first begins with the next check: most
        responses have been sent by then, and need none.
        """
        self._until, self._error = -math.inf, ClientGone
        self._taken, self._taken_before = taken, -math.inf

    def check(self, now: float) -> None:
        """End the request if its time is over, and watch the client of a long one."""
        if now >= self._until and self._reads_well():
            self._until = now + SEND_S
        elif now >= self._until:
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
            del reason  # an error that its own frames refer to would keep the memory of the request

    def stop(self) -> None:
        """End the deadline, and stop watching the client."""
        self._running.discard(self)
        if self._watch is not None:
            self._watch.cancel()

    def _reads_well(self) -> bool:
        """Return whether the client has read enough of the response since the last call."""
        if self._taken is None:
            return False
        before, self._taken_before = self._taken_before, self._taken()
        return self._taken_before - before >= self._least

    async def _end_at_disconnect(self) -> None:
        await self._disconnected()
        self._end(ClientGone())

    def _end(self, reason: Exception) -> None:
        if not self._has_ended and self._task:
            self._reason, self._has_ended = reason, True
            self._task.cancel()


class Deadlines:
    """The deadlines of the ``running`` requests of a process, checked every ``TICK_S`` while there are any."""

    def __init__(self) -> None:
        """Start with none."""
        self.running: set[Deadline] = set()
        self.is_ticking = False

    def tick(self) -> None:
        """Check all of them."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for deadline in tuple(self.running):
            deadline.check(now)
        self.is_ticking = bool(self.running)
        if self.is_ticking:
            loop.call_later(TICK_S, self.tick)


def seconds_of(milliseconds: bytes) -> float:
    """Return the time that the client allows, in seconds; raise ``Unprocessable`` for an invalid value."""
    if not milliseconds.isdigit() or len(milliseconds) > MAX_DIGITS or not int(milliseconds):
        raise wrong(
            ("header", DEADLINE_HEADER),
            "invalid deadline",
            expected="a positive integer (milliseconds)",
            got=repr(milliseconds.decode("latin-1")),
        )
    return int(milliseconds) / 1000
