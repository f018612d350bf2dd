"""What a request may cost before anything looks into it: the bytes of its body, and the time until its answer."""

import asyncio
from collections.abc import Callable, Mapping
from functools import lru_cache

from starlette.types import ASGIApp, Receive, Scope, Send

from app.errors import Malformed, UnsupportedMediaType, clip, wrong
from app.http.body import Budget, Intake, has_body, too_large
from app.http.deadlines import Deadline, Deadlines
from app.settings import MB, Settings

Headers = Mapping[bytes, bytes]

DEADLINE_HEADER = "Pullback-Deadline-Ms"
CLOCK, INTAKE = "pullback.clock", "pullback.intake"
BINARY = (b"application/vnd.safetensors", b"application/octet-stream")
# Where it is, the body begins with so many bytes of JSON, and tensors follow.
JSON_LENGTH = b"inference-header-content-length"
MAX_DIGITS = 18


def limits(app: ASGIApp, settings: Settings, unpacks: Callable[[str], bool] = lambda path: False) -> ASGIApp:
    """Return ``app`` behind the limits; what breaks one is raised as the ``PullbackError`` for it.

    ``unpacks`` tells of a path whether who answers there takes bodies apart, and sees to the limits of their parts:
    they may be compressed, and have more in them than JSON.

    The deadline counts from the headers; ``clock_of(scope)`` tells it to the inner application. A declared
    body is taken from the budget before a byte of it is read, a chunked one as it comes; both are given back when the
    request ends, however it ends. Budgets are of this process.
    """
    budget, clocks = Budget(settings.max_inflight_mb * MB), Deadlines()

    async def limited(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        now = asyncio.get_running_loop().time()
        deadline = now + _allowed_s(headers, settings)
        intake = scope[INTAKE] = _intake(receive, headers, budget, settings, unpacks(scope["path"]))
        clock = scope[CLOCK] = Deadline(receive, now, deadline, intake.too_slow)
        clocks.start(clock)
        try:
            await app(scope, intake.receive, send)
        except asyncio.CancelledError:
            clock.explain()
            raise
        finally:
            clocks.stop(clock)
            budget.give(intake.held)
            # They know the scope through what they receive from: a circle, which only the collector could undo.
            del scope[CLOCK], scope[INTAKE]

    return limited


def clock_of(scope: Scope) -> Deadline:
    """Return the clock of a request, which has its deadline, and wants to know how far it is."""
    clock: Deadline = scope[CLOCK]
    return clock


def size_limit(scope: Scope) -> int:
    """Return how many bytes the body of a request may have, as it came and as it is when inflated."""
    intake: Intake = scope[INTAKE]
    return intake.limit


def json_limit(scope: Scope) -> int:
    """Return how many bytes of JSON there may be in the body of a request."""
    intake: Intake = scope[INTAKE]
    return intake.json_limit


def charge(scope: Scope, size: int) -> None:
    """Count ``size`` bytes more to what the request holds until it ends: its answer, or its body when inflated.

    Raises ``Overloaded`` when the budget has no room for it: clients that read nothing must not fill the memory.
    """
    intake: Intake = scope[INTAKE]
    intake.charge(size)


def _intake(receive: Receive, headers: Headers, budget: Budget, settings: Settings, is_packed: bool) -> Intake:
    """Return the way in of a body, what it declares taken from the budget."""
    json_limit = min(settings.max_json_mb * MB, budget.limit)
    if not has_body(headers):
        return Intake(receive, budget, declared=0, limit=0, json_limit=json_limit)
    if not is_packed:
        _refuse_encoding(headers)
    is_binary = _is_binary(headers.get(b"content-type", b"")) or (is_packed and JSON_LENGTH in headers)
    # JSON, which is parsed at one go, has a smaller limit.
    limit = min(settings.max_body_mb * MB, budget.limit) if is_binary else json_limit
    return Intake(receive, budget, declared=_declared(headers, limit), limit=limit, json_limit=json_limit)


def _allowed_s(headers: Headers, settings: Settings) -> float:
    """Return the seconds for this request: the setting, or less where the client asks for less."""
    value = headers.get(b"pullback-deadline-ms")
    if value is None:
        return settings.deadline_s
    if not value.isdigit() or len(value) > MAX_DIGITS or not int(value):
        raise wrong(
            ("header", DEADLINE_HEADER),
            "invalid deadline",
            expected="a positive integer (milliseconds)",
            got=repr(value.decode("latin-1")),
        )
    return min(int(value) / 1000, settings.deadline_s)


def _refuse_encoding(headers: Headers) -> None:
    encoding = headers.get(b"content-encoding", b"identity").strip().lower()
    if encoding not in (b"identity", b""):
        came = clip(encoding.decode("latin-1"), 40)
        raise UnsupportedMediaType(f"expected a body without Content-Encoding, got {came!r}: send it uncompressed")


@lru_cache(maxsize=64)
def _is_binary(content_type: bytes) -> bool:
    return content_type.partition(b";")[0].strip().lower() in BINARY


def _declared(headers: Headers, limit: int) -> int:
    """Return the size that the client announces, 0 where it announces none."""
    value = headers.get(b"content-length", b"0")
    if not value.isdigit():
        raise Malformed(f"expected a number of bytes in Content-Length, got {clip(repr(value), 40)}")
    if len(value) > MAX_DIGITS or int(value) > limit:
        raise too_large(limit, clip(value.decode("ascii"), MAX_DIGITS + 2))
    return int(value)
