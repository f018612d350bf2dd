"""Limits on every request: the size of its body, and the time until its response."""

import asyncio
from functools import lru_cache

from starlette.types import ASGIApp, Receive, Scope, Send

from app.errors import Malformed, UnsupportedMediaType, clip, wrong
from app.http.body import Budget, too_large
from app.http.deadlines import Deadline, Deadlines
from app.http.request import REQUEST, Request
from app.settings import MB, Settings

DEADLINE_HEADER = "Pullback-Deadline-Ms"
BINARY = (b"application/vnd.safetensors", b"application/octet-stream")
MAX_DIGITS = 18


class Limits:
    """The middleware that gives each request a deadline, its limits, and the budget of all bodies in this process.

    The deadline counts from the headers. Routes reserve memory for a body of declared size before it is read
    (``admit``); that for a chunked body is taken as it arrives. It is released when the request ends, however it ends.
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


def admit(request: Request) -> None:
    """Reserve memory for an uncompressed body, whose limit depends on its media type; raises a ``PullbackError``."""
    if request.has_body:
        encoding = request.headers.get(b"content-encoding", b"").strip().lower()
        if encoding not in (b"identity", b""):
            got = clip(encoding.decode("latin-1"), 40)
            raise UnsupportedMediaType(f"expected a body without Content-Encoding, got {got!r}: send it uncompressed")
        # JSON is parsed in one piece, so its limit is smaller.
        reserve(request, is_binary=_is_binary(request.headers.get(b"content-type", b"")))


def reserve(request: Request, *, is_binary: bool) -> None:
    """Reserve memory for a body of declared size; raises ``Malformed``, ``BodyTooLarge`` or ``Overloaded``."""
    request.limit = request.binary_limit if is_binary else request.json_limit
    length = request.headers.get(b"content-length", b"0")
    if not length.isdigit():
        raise Malformed(f"expected a number of bytes in Content-Length, got {clip(repr(length), 40)}")
    if len(length) > MAX_DIGITS or int(length) > request.limit:
        raise too_large(request.limit, clip(length.decode("ascii"), MAX_DIGITS + 2))
    request.size = int(length)
    request.hold(request.size)


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


@lru_cache(maxsize=64)
def _is_binary(content_type: bytes) -> bool:
    return content_type.partition(b";")[0].strip().lower() in BINARY
