"""One request: everything that the service knows about it, from its headers to the end of its response."""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import TypeAlias
from urllib.parse import quote

from starlette.types import Message, Receive, Scope, Send

from app.errors import BodyTooSlow, Malformed, PullbackError, clip
from app.execution.lifecycle import Lifecycle
from app.http.body import MAX_DIGITS, Budget, ClientGone, too_large
from app.http.connection import ZERO_COPY
from app.http.deadlines import Deadline
from app.http.fast_path import CANDIDATE, Candidate
from app.http.problems import Dialect, Header, problem, render
from app.http.transport import BEGAN, CONNECTION, Link, unacknowledged
from app.http.zero_copy import ZeroCopyBody
from app.telemetry.accounts import NOT_CHARGED, Account
from app.telemetry.counters import NOT_RECORDED, Counters
from app.telemetry.stage_times import TRACEPARENT, TRACESTATE, StageTimes
from app.tensors import fast_json
from app.tensors.casting import aligned
from app.tensors.fast_json import Parse
from app.tensors.strict_json import Body
from pullback.keys import Grant

# How long the rest of a refused body is received.
LINGER_S = 2.0
CLOSE = (b"connection", b"close")
# How much of a path the log shows.
MAX_PATH = 300
REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")

Defer: TypeAlias = Callable[["Request"], Awaitable[None]]
"""Makes a job of a request, and answers with its id."""

REQUEST = "pullback.request"
"""The key of the ``Request`` in the scope of a request."""
OF_KEY, OF_JOB = "pullback.key", "pullback.account"
"""The keys of the name of the API key, and of the account, in the scope of a request of a job."""


class Request:
    """One request.

    ``began`` is the arrival of its first byte, and ``turn`` when the connection had answered all earlier ones too:
    times of ``time.perf_counter``. ``received`` and ``sent`` count the bytes of the body and of the response body.
    ``limit`` bounds the body in bytes, as received and when inflated: it is ``json_limit``, which bounds the JSON in
    any body, or ``binary_limit``. ``held`` bytes of ``budget`` belong to this request until it ends. ``target`` is the
    path as the client wrote it, for the log. ``zero_copy`` is set for a large body. ``key`` is the name of the key that
    the request has, empty if it has none, and ``grant`` is what the key allows. ``account`` counts the work, and
    ``quota`` returns the headers with what is left for the key. ``candidate`` is set if the fast path may make a
    template from this request, and ``defer`` if it may become a job. The route sets ``dialect``, that of its errors,
    and ``counters``. ``times`` are set if it is traced.
    """

    deadline: Deadline
    dialect: Dialect
    budget: Budget

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        request_id: bytes,
        *,
        lifecycle: Lifecycle,
        counters: Counters = NOT_RECORDED,
    ) -> None:
        """Parse the headers, and count the request in ``lifecycle``.

        A valid request id from the client replaces ``request_id``. ``counters`` are those of a request without a route.
        """
        self.began: float = scope.pop(BEGAN, None) or time.perf_counter()
        self.scope, self.method, self.path = scope, scope["method"], scope["path"]
        self.counters, self.dialect = counters, problem
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        client_id = self.headers.get(b"x-request-id")
        self.id: bytes = client_id if client_id and REQUEST_ID.fullmatch(client_id) else request_id
        length = self.headers.get(b"content-length", b"0")
        self.has_body = self.is_unread = length != b"0" or b"transfer-encoding" in self.headers
        raw: bytes = scope.get("raw_path") or quote(self.path).encode()
        target = raw[:MAX_PATH].decode("latin-1")
        self.target = target if target.isprintable() else target.encode("unicode_escape").decode("ascii")
        self.client: tuple[str, int] | None = scope.get("client")
        self.link: Link = scope.pop(CONNECTION, None) or Link()
        self.turn = max(self.began, self.link.answered_at)
        self.zero_copy: ZeroCopyBody | None = scope.pop(ZERO_COPY, None)
        self.candidate: Candidate | None = scope.pop(CANDIDATE, None)
        self.lifecycle, self.is_counted = lifecycle, True
        lifecycle.in_flight += 1
        self.json_limit = self.binary_limit = self.limit = 0
        self.status = self.received = self.sent = self.size = self.held = 0
        self.key: str = scope.pop(OF_KEY, "")
        self.grant: Grant | None = None
        self.times: StageTimes | None = None
        self.account: Account = scope.pop(OF_JOB, NOT_CHARGED)
        self.quota: Callable[[], Sequence[Header]] | None = None
        self.defer: Defer | None = None
        self.is_streamed = False
        self._receive, self._send = receive, send

    @property
    def traceparent(self) -> bytes:
        """The header that names the caller's span, empty without one."""
        return self.headers.get(TRACEPARENT, b"")

    @property
    def tracestate(self) -> bytes:
        """The header with the state of the caller's trace, empty without one."""
        return self.headers.get(TRACESTATE, b"")

    @property
    def scheme(self) -> str:
        """The scheme of the request's URL."""
        return self.scope["scheme"]

    @property
    def route(self) -> str:
        """The template of the path, empty for a request without a route."""
        return getattr(self.scope.get("route"), "path", "")

    @property
    def parse(self) -> Parse:
        """The parser of the body: only the fast path needs to know where the numbers are."""
        return fast_json.parse_bare if self.candidate is None else fast_json.parse

    def leave(self) -> None:
        """Do not count the request as in progress any more: it has ended, or is a probe."""
        if self.is_counted:
            self.is_counted = False
            self.lifecycle.in_flight -= 1

    def reserve(self, *, is_binary: bool, most: int | None = None) -> None:
        """Reserve memory for a body of declared size, at most so many bytes of a body that is read in pieces.

        Raises ``Malformed``, ``BodyTooLarge`` or ``Overloaded``.
        """
        self.limit = self.binary_limit if is_binary else self.json_limit
        length = self.headers.get(b"content-length", b"0")
        if not length.isdigit():
            raise Malformed(f"expected a number of bytes in Content-Length, got {clip(repr(length), 40)}")
        if len(length) > MAX_DIGITS or int(length) > self.limit:
            raise too_large(self.limit, clip(length.decode("ascii"), MAX_DIGITS + 2))
        self.size = int(length)
        self.is_streamed = most is not None
        self.hold(self.size if most is None else most)

    def hold(self, size: int) -> None:
        """Take ``size`` more bytes from the budget until the request ends; raises ``Overloaded``."""
        if size > self.budget.free:
            raise self.budget.refusal(size)
        self.budget.free -= size
        self.held += size

    async def receive(self) -> Message:
        """Return the next ASGI message of the request.

        Raises ``BodyTooLarge`` or ``Overloaded`` when more bytes arrive than the limits allow.
        """
        message = await self._receive()
        self.received += len(message.get("body", b""))
        self.is_unread = self.is_unread and message.get("more_body", False)
        if self.received > self.held:
            if self.received > self.limit:
                raise too_large(self.limit, "more")
            if not self.is_streamed:
                self.hold(self.received - self.held)
        return message

    async def read(self, *, is_binary: bool = False, lead: int = 0) -> Body:
        """Return the whole body. From now on the request ends when its client disconnects.

        A large or binary body goes into memory that is allocated before it arrives; tensors that begin after ``lead``
        bytes are aligned there. Any other body is used in place if it arrives in one piece; otherwise copied once.

        Raises ``ClientGone`` when the client disconnects before the end, ``Malformed`` when the body does not have the
        declared size, and the errors of ``receive``.
        """
        if is_binary and self.size:
            body = aligned(self.size, lead).data
            await self._fill(body)
        elif self.zero_copy:
            body = bytearray(self.size)
            await self._fill(memoryview(body))
        else:
            message = await self.receive()
            body = message.get("body", b"")
            if message.get("more_body", False):
                body = bytearray(body)
                while message.get("more_body", False):
                    message = await self.receive()
                    body += message.get("body", b"")
            if message["type"] == "http.disconnect":
                raise ClientGone
        self.deadline.start_work()
        return body

    async def pieces(self, size: int) -> AsyncGenerator[bytes]:
        """Yield the body in pieces of about ``size`` bytes.

        Raises ``ClientGone`` when the client disconnects before the end, and the errors of ``receive``.
        """
        piece, more = bytearray(), True
        while more:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            piece += message.get("body", b"")
            more = message.get("more_body", False)
            if len(piece) >= size or (piece and not more):
                yield bytes(piece)
                piece.clear()
        self.deadline.start_work()

    async def _fill(self, buffer: memoryview) -> None:
        """Fill ``buffer`` with the body. Pieces that the zero-copy body receives are in place already."""
        start, more = 0, True
        if self.zero_copy:
            self.zero_copy.buffer = buffer
        try:
            while more:
                message = await self.receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                piece, more = message.get("body", b""), message.get("more_body", False)
                end = start + len(piece)
                if end > len(buffer) or (not more and end < len(buffer)):
                    raise Malformed(f"expected a body of {len(buffer)} bytes (Content-Length), got {end}")
                if not (isinstance(piece, memoryview) and piece.obj is buffer.obj):
                    buffer[start:end] = piece
                start = end
        finally:
            if self.zero_copy:
                self.zero_copy.buffer = None

    async def wait_for_disconnect(self) -> None:
        """Wait until the client disconnects. The body must have been read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def too_slow(self) -> BodyTooSlow:
        """Return the error for a body that is incomplete at the deadline."""
        return BodyTooSlow(f"expected the whole body before the deadline, got {self.received} bytes of it")

    async def send(self, message: Message) -> None:
        """Send an ASGI message of the response, with our headers among its headers; raises ``ClientGone``."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = message["headers"] = [*message.get("headers", ()), (b"x-request-id", self.id)]
            if self.quota is not None:
                headers += self.quota()
            if self.lifecycle.draining and not self.link.has_more():
                headers.append(CLOSE)
        await self._send(message)
        if message["type"] == "http.response.body" and self.method != "HEAD":
            self.sent += len(message.get("body", b""))
        if self.link.is_lost:
            raise ClientGone

    def taken(self) -> int:
        """Return how many bytes of the response the client's system has received."""
        return self.sent - (unacknowledged(self.link.transport) if self.link.transport is not None else 0)

    async def respond(self, status: int, headers: Sequence[Header], body: bytes) -> None:
        """Send a whole response; raises ``ClientGone``."""
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})

    async def fail(self, error: PullbackError) -> None:
        """Send an error in the dialect of the route, and close the connection if the body has not been read.

        Before closing, receive the rest of the body for a moment. Closing while the client sends resets the connection,
        and many clients then report the reset instead of the response.
        """
        status, headers, body = render(error, self.path, self.dialect)
        is_cut_off = self.is_unread
        if is_cut_off:
            headers.append(CLOSE)
        with contextlib.suppress(ClientGone):
            await self.send({"type": "http.response.start", "status": status, "headers": headers})
            await self.send({"type": "http.response.body", "body": body, "more_body": is_cut_off})
        if is_cut_off:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LINGER_S):
                    while self.is_unread:
                        message = await self._receive()
                        self.received += len(message.get("body", b""))
                        self.is_unread = message.get("more_body", False)
            await self._send({"type": "http.response.body", "body": b""})
