"""The middleware that limits every request: the size of its body, and the time until its response."""

import asyncio

from starlette.types import ASGIApp, Receive, Scope, Send

from app.errors import wrong
from app.http.body import MAX_DIGITS, Budget
from app.http.deadlines import Deadline, Deadlines
from app.http.request import REQUEST, Request
from app.settings import MB, Settings

DEADLINE_HEADER = "Pullback-Deadline-Ms"


class Limits:
    """The middleware that gives each request a deadline, its limits, and the budget of all bodies in this process.

    The deadline counts from the headers. Routes reserve memory for a body of declared size before it is read
    (``Request.reserve``); that for a chunked body is taken as it arrives. It is released when the request ends.
    """

    def __init__(self, app: ASGIApp, settings: Settings, budget: Budget) -> None:
        """Store the limits of the settings, which are at most those of the budget."""
        self._app, self._budget, self._deadlines, self._deadline_s = app, budget, Deadlines(), settings.deadline_s
        self._json_limit = min(settings.max_json_mb * MB, budget.limit)
        self._binary_limit = min(settings.max_body_mb * MB, budget.limit)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request; raises the ``PullbackError`` for a limit that it exceeds."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request: Request = scope[REQUEST]
        allowed_s = self._deadline_s
        if (milliseconds := request.headers.get(b"pullback-deadline-ms")) is not None:
            allowed_s = min(_seconds(milliseconds), allowed_s)
        request.budget, request.binary_limit = self._budget, self._binary_limit
        request.limit = request.json_limit = self._json_limit
        waited_s, request.link.waited_s = request.link.waited_s, 0.0
        request.deadline = Deadline(self._deadlines, allowed_s, request.wait_for_disconnect, request.too_slow, waited_s)
        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            request.deadline.explain()
            raise
        finally:
            request.deadline.stop()
            self._budget.free += request.held
            # The deadline refers to the request: only the garbage collector could free this reference cycle.
            del request.deadline


def _seconds(milliseconds: bytes) -> float:
    """Return the time that the client allows, in seconds; raise ``Unprocessable`` for an invalid value."""
    if not milliseconds.isdigit() or len(milliseconds) > MAX_DIGITS or not int(milliseconds):
        raise wrong(
            ("header", DEADLINE_HEADER),
            "invalid deadline",
            expected="a positive integer (milliseconds)",
            got=repr(milliseconds.decode("latin-1")),
        )
    return int(milliseconds) / 1000
