"""Limits on every request: the size of its body, and the time until its response."""

import asyncio
from functools import lru_cache

from app.errors import Malformed, UnsupportedMediaType, clip, wrong
from app.http.body import Budget, too_large
from app.http.deadlines import Deadline, Deadlines
from app.http.request import Handler, Request
from app.settings import MB, Settings

DEADLINE_HEADER = "Pullback-Deadline-Ms"
BINARY = (b"application/vnd.safetensors", b"application/octet-stream")
# With this header a body begins with that many bytes of JSON, and tensors follow.
JSON_LENGTH = b"inference-header-content-length"
MAX_DIGITS = 18


def limits(settings: Settings, budget: Budget) -> Handler:
    """Return the handler that enforces the limits and calls the handler of the route.

    It raises the ``PullbackError`` for a limit that a request exceeds.

    The deadline counts from the headers. A body of declared size is taken from the budget before it is read, a chunked
    body as it arrives; both are returned when the request ends, however it ends. Each process has its own budget.
    """
    deadlines = Deadlines()
    json_limit = min(settings.max_json_mb * MB, budget.limit)
    binary_limit = min(settings.max_body_mb * MB, budget.limit)

    async def handle(request: Request) -> None:
        now, headers = asyncio.get_running_loop().time(), request.headers
        allowed_s = settings.deadline_s
        if (milliseconds := headers.get(b"pullback-deadline-ms")) is not None:
            allowed_s = min(_seconds(milliseconds), allowed_s)
        request.budget, request.json_limit = budget, json_limit
        if request.has_body:
            unpacks = request.route.unpacks
            if not unpacks and b"content-encoding" in headers:
                _refuse_encoding(headers[b"content-encoding"])
            # JSON is parsed in one piece, so its limit is smaller.
            is_binary = JSON_LENGTH in headers if unpacks else _is_binary(headers.get(b"content-type", b""))
            request.limit = binary_limit if is_binary else json_limit
            request.size = _size(headers.get(b"content-length", b"0"), request.limit)
            request.hold(request.size)
        request.deadline = Deadline(request.wait_for_disconnect, now, now + allowed_s, request.too_slow)
        deadlines.start(request.deadline)
        try:
            await request.route.handler(request)
        except asyncio.CancelledError:
            request.deadline.explain()
            raise
        finally:
            deadlines.stop(request.deadline)
            budget.free += request.held
            # The deadline refers to the request: only the garbage collector could free this reference cycle.
            del request.deadline

    return handle


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


def _refuse_encoding(content_encoding: bytes) -> None:
    encoding = content_encoding.strip().lower()
    if encoding not in (b"identity", b""):
        got = clip(encoding.decode("latin-1"), 40)
        raise UnsupportedMediaType(f"expected a body without Content-Encoding, got {got!r}: send it uncompressed")


@lru_cache(maxsize=64)
def _is_binary(content_type: bytes) -> bool:
    return content_type.partition(b";")[0].strip().lower() in BINARY


def _size(content_length: bytes, limit: int) -> int:
    """Return the size of the body that the client declares, 0 if it declares none."""
    if not content_length.isdigit():
        raise Malformed(f"expected a number of bytes in Content-Length, got {clip(repr(content_length), 40)}")
    if len(content_length) > MAX_DIGITS or int(content_length) > limit:
        raise too_large(limit, clip(content_length.decode("ascii"), MAX_DIGITS + 2))
    return int(content_length)
