"""Connections: uvicorn's protocol, with limits on the headers, and with our errors for requests that are not HTTP.

By default uvicorn on httptools accepts headers of any size, and waits for them without a limit.
"""

import asyncio
import time
from typing import cast

import httptools

from app.errors import HeadTooLarge, Malformed, Overloaded, PullbackError, TargetTooLong, clip
from app.http.endings import ANSWERING, BODY, HEAD, IDLE, REFUSED, EndingProtocol
from app.http.fast_path import CANDIDATE, FAST_PATH, VARYING, Candidate, FastPath, note_response
from app.http.transport import BEGAN, CONNECTION, HeadCoalescing, Link, PipelineFlow
from app.http.zero_copy import LARGE, ZeroCopyBody, new_parser
from app.telemetry.stage_times import LISTED


def path_of(target: bytes) -> bytes:
    """Return the path and the query of a target that is a whole URL; raise ``Malformed`` for other targets."""
    try:
        url = httptools.parse_url(target)
    except httptools.HttpParserInvalidURLError:
        url = None
    if url is None or not url.host:
        got = clip(repr(target.decode("latin-1")), 80)
        raise Malformed(f"expected a path that begins with '/', or a URL, as the target of the request, got {got}")
    return (url.path or b"/") + (b"?" + url.query if url.query else b"")


HEAD_LIMIT, TARGET_LIMIT = 64 << 10, 32 << 10
# How many connections over the limit may wait for a probe of health, and for how long.
EXCESS, EXCESS_S = 8, 0.5
# How many requests may wait on a connection while an earlier one is answered.
PIPELINED = 1000
ZERO_COPY = "pullback.zero_copy"
"""The key in a request's scope for its ``ZeroCopyBody``, if it has one."""


class Connection(EndingProtocol):
    """One connection.

    The part of a request that is not body may exceed the size of the body by ``HEAD_LIMIT`` bytes: the request line and
    the headers, then the chunk frames and the trailers. Each read is checked after it is parsed, so the limit is exact
    to one read. Headers must end within ``endings.HEAD_S`` after their first byte, those of the first request after the
    connection opens.

    A server may ignore an ``Upgrade`` header, but httptools drops the body of a request that has one, so such a request
    is parsed a second time without it. Java's client sends it with its first request on a connection.

    A request that begins while no other is in progress may be ``held`` for the fast path (``app.fast_path``), which
    answers it or releases it to the general path.
    """

    # How many more bytes may arrive before the end of the request that is read.
    _allowance = HEAD_LIMIT
    _fast_path: "FastPath[Connection] | None" = None
    # When the bytes that are parsed arrived, and when the first byte of their request: times of ``time.perf_counter``.
    _arrived_at = began = 0.0
    # Those among the headers of the request that is read that vary.
    varying: dict[bytes, bytes]
    # The version of HTTP of the request that is read, and whether the connection stays open after its response.
    version, keeps_alive = "1.1", True
    # The error for a connection over the limit, on which only a probe of health is answered.
    _excess: Overloaded | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start to wait for the first request; refuse a connection over the limit."""
        self._coalescing = HeadCoalescing(cast(asyncio.Transport, transport), self.loop)
        coalescing = cast(asyncio.Transport, self._coalescing)
        super().connection_made(coalescing)
        self.flow = PipelineFlow(coalescing, self.pipeline)
        self.link = Link(self.tasks, self.pipeline, coalescing)
        # At its limit, uvicorn would refuse the requests of all connections.
        limit, self.limit_concurrency = self.limit_concurrency, None
        if limit is not None and len(self.connections) > limit:
            self._excess = Overloaded(f"expected at most {limit} connections at a time, got one more: try again later")
            wait_s = EXCESS_S if len(self.connections) <= limit + EXCESS else 0.0
            self._head_timer = self.loop.call_later(wait_s, self._refuse, self._excess)
        else:
            self._start_head_timer()
            self._fast_path = self.app_state.get(FAST_PATH)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting; tell the request in progress that its client has disconnected."""
        self._stop_head_timer()
        self.link.is_lost = True
        self._leave_fast_path()
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse data, and offer the request that is held to the fast path."""
        self._arrived_at = time.perf_counter()
        self._parse(data)
        if self.held is not None and self._fast_path is not None:
            self._fast_path.offer(self.held, self._arrived_at)

    # What the fast path uses.

    def answer(self, response: bytes) -> None:
        """Send the response to the request that is held."""
        self.held, self.link.answered_at = None, time.perf_counter()
        self._coalescing.write_response(response)
        if not self.keeps_alive:
            self.transport.close()
        elif self.timeout_keep_alive_task is None and not self.link.is_lost:
            self._start_keep_alive_timer(self.timeout_keep_alive)

    def release(self, candidate: Candidate | None = None) -> None:
        """Pass the request that is held, and has ended for the fast path, to the general path.

        The fast path may make a template of it if it is a ``candidate``.
        """
        held, self.held = self.held, None
        if held is not None:
            is_whole, self._state = self._state is IDLE, BODY
            self._pass_on(candidate)
            if held.body:
                super().on_body(held.body)
            if is_whole:
                self.on_message_complete()

    def _leave_fast_path(self) -> None:
        """Pass the request that is held, if any, to the general path."""
        if self.held is not None and self._fast_path is not None:
            self._fast_path.end(self.held)
            self.release()

    # What it does with HTTP.

    def _parse(self, data: bytes) -> None:
        """Parse data, and enforce the limits; start zero-copy reading of a large body."""
        if self._state is REFUSED:
            return
        earlier, rest = self.cycle, data
        self._allowance -= len(data)
        try:
            while rest:
                try:
                    self.parser.feed_data(rest)
                    break
                except httptools.HttpParserUpgrade as stop:
                    rest = rest[stop.args[0] :]
                    if self.parser.get_method() == b"CONNECT":
                        raise httptools.HttpParserError("CONNECT is for proxies") from None
                    head = self._head_without_upgrade()
                    self.parser = new_parser(self)
                    self.parser.feed_data(head)
        except httptools.HttpParserError as error:
            reason = error.__context__
            self._refuse(
                reason if isinstance(reason, PullbackError) else Malformed(f"expected an HTTP/1.1 request: {error}")
            )
            return
        if self._allowance < 0:
            self._refuse(HeadTooLarge(f"expected at most {HEAD_LIMIT} bytes of request line and headers, got more"))
        elif self._state is HEAD and self._head_timer is None:
            self._start_head_timer()
        elif self._state is BODY and self.cycle is not earlier:
            # The rest of a large body bypasses the parser if the application provides memory for it.
            size = int(dict(self.scope["headers"]).get(b"content-length", b"0"))
            if size - len(self.cycle.body) >= LARGE:
                self.scope[ZERO_COPY] = ZeroCopyBody(self, self.cycle, size)  # pyright: ignore[reportGeneralTypeIssues] - uvicorn's type of a scope is closed

    def on_message_begin(self) -> None:
        """Start a request; release an earlier one that is held, because the fast path answers lone requests."""
        if self.held is not None:
            self._leave_fast_path()
        self._state, self._allowance, self.began = HEAD, HEAD_LIMIT, self._arrived_at
        self.url, self.headers, self.varying = b"", [], {}

    def on_url(self, url: bytes) -> None:
        """Read a part of the target."""
        super().on_url(url)
        if len(self.url) > TARGET_LIMIT:
            raise TargetTooLong(
                f"expected at most {TARGET_LIMIT} bytes of request target, got more: send what is large in the body"
            )

    def on_header(self, name: bytes, value: bytes) -> None:
        """Read a header; of several varying ones with one name, the last counts, but for lists. There is one key."""
        name = name.lower()
        if name in VARYING:
            if name in LISTED and name in self.varying:
                value = self.varying[name] + b"," + value
            elif name == b"authorization" and name in self.varying:
                raise Malformed("expected one Authorization header, got more")
            self.varying[name] = value
        else:
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Hold the request for the fast path, or pass it to the application."""
        self._state, parser = BODY, self.parser
        if self._head_timer is not None:
            self._stop_head_timer()
        if self.url[:1] != b"/":
            self.url = path_of(self.url)
        if self._excess is not None and not self.url.startswith(b"/health/"):
            raise self._excess
        self.version = parser.get_http_version()
        self.keeps_alive = self.version != "1.0" and parser.should_keep_alive() and self._excess is None
        is_first = (self._running is None or self._running.response_complete) and not self.flow.write_paused
        if is_first and self._fast_path is not None and not parser.should_upgrade():
            self.held = self._fast_path.begin(self)
        if self.held is None:
            self._pass_on()

    def _pass_on(self, candidate: Candidate | None = None) -> None:
        """Pass the request whose headers have been parsed to the application."""
        self._unset_keepalive_if_required()
        earlier, url, headers = self.cycle, self.url, [*self.headers, *self.varying.items()]
        super().on_message_begin()
        # A list of its own: the parser adds the trailers of a chunked body to ``self.headers``.
        self.url, self.scope["headers"] = url, headers
        self.expect_100_continue = self.varying.get(b"expect", b"").lower() == b"100-continue"
        self.scope[BEGAN] = self.began  # pyright: ignore[reportGeneralTypeIssues] - uvicorn's type of a scope is closed
        self.scope[CONNECTION] = self.link  # pyright: ignore[reportGeneralTypeIssues] - uvicorn's type of a scope is closed
        if candidate is not None:
            self.scope[CANDIDATE] = candidate  # pyright: ignore[reportGeneralTypeIssues] - uvicorn's type of a scope is closed
        super().on_headers_complete()
        if self.cycle is not earlier:
            # The parser knows it only while it is at the headers.
            self.cycle.keep_alive = self.keeps_alive
            if self._running is None or earlier.response_complete:
                self._running = self.cycle
            if candidate is not None:
                note_response(candidate, self.cycle)
        if len(self.pipeline) > PIPELINED:
            raise Overloaded(f"expected at most {PIPELINED} requests ahead of their answers, got more")

    def on_body(self, body: bytes) -> None:
        """Receive a part of the body."""
        self._allowance += 2 * len(body)
        if self.held is not None:
            self.held.body += body
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request."""
        if self.held is not None:
            self._state = IDLE
            return
        super().on_message_complete()
        is_answered = self._running is None or self.cycle.response_complete
        self._state = IDLE if is_answered else ANSWERING

    def on_response_complete(self) -> None:
        """Go on with the next request, or wait for it."""
        self.link.answered_at = time.perf_counter()
        if self.pipeline:
            self._running = self.pipeline[-1][0]
        elif self._state is ANSWERING:
            self._state = IDLE
        super().on_response_complete()

    def _should_upgrade(self) -> bool:
        # uvicorn creates no request then. ``parse`` does, by parsing it again.
        return True

    def _head_without_upgrade(self) -> bytes:
        """Return the head of the current request, written anew without its ``Upgrade`` header."""
        line = b"%b %b HTTP/%b\r\n" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        headers = [b"%b: %b\r\n" % pair for pair in self.scope["headers"] if pair[0] != b"upgrade"]
        return b"".join((line, *headers, b"\r\n"))
