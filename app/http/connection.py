"""Connections: uvicorn's, with the bounds that it lacks before a request has headers, and with our errors there.

By default uvicorn on httptools keeps headers of any size, and waits for them without a limit.
"""

import asyncio
import re
from dataclasses import dataclass
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from app.errors import BodyTooSlow, HeadTooLarge, Malformed, PullbackError
from app.http.problems import render
from app.http.zero_copy import LARGE, ZeroCopyBody

HEAD_LIMIT = 64 << 10
HEAD_S = 20.0
CONNECTION = "pullback.connection"
"""The key in a request's scope under which the connection leaves a ``Link`` for it."""
UPGRADE = re.compile(rb"\nupgrade:", re.IGNORECASE)
# A longer piece is written by itself: copying it would cost more than the system call that it saves.
JOINED = 1 << 15


@dataclass(slots=True)
class Link:
    """What a connection knows of a request: the tasks of all requests in this process, and the zero-copy body."""

    tasks: set[asyncio.Task[None]]
    zero_copy: ZeroCopyBody | None = None


class HeadCoalescing:
    """A transport around another: the head of an answer waits for the body, one turn of the event loop at most.

    The server writes heads and bodies one by one, each a system call and a packet.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        """Send through ``transport``."""
        self._transport, self._loop, self._head = transport, loop, b""

    def __getattr__(self, name: str) -> Any:
        """Return everything else from the other transport."""
        return getattr(self._transport, name)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send ``data``, or keep it for a moment."""
        head, self._head = self._head, b""
        if not head and data[:5] == b"HTTP/":
            self._head = bytes(data)
            self._loop.call_soon(self._flush)
        elif head and len(data) <= JOINED:
            self._transport.write(head + data)
        else:
            if head:
                self._transport.write(head)
            self._transport.write(data)

    def close(self) -> None:
        """Send what was kept, and close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        head, self._head = self._head, b""
        if head and not self._transport.is_closing():
            self._transport.write(head)


class Connection(HttpToolsProtocol):
    """One connection.

    Of each request, what is not body may be ``HEAD_LIMIT`` bytes more than the body is: the request line and the
    headers at its beginning, and then the frames of chunks and the trailers. What came in one read is only looked at
    once it is parsed, so that the limit is exact to one read. Headers that began must end within ``HEAD_S``.
    """

    _read = 0
    _spare = HEAD_LIMIT
    _in_head = True
    _in_body = False
    _is_new = False
    _patience: asyncio.TimerHandle | None = None
    link: Link

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for the first request."""
        super().connection_made(cast(asyncio.Transport, HeadCoalescing(cast(asyncio.Transport, transport), self.loop)))
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what came, and see that it is not too much."""
        self._read = len(data)
        super().data_received(data if self._in_body else without_upgrade(data))
        self._spare -= self._read
        if self._spare < 0 and not self.transport.is_closing():
            self._refuse(HeadTooLarge(f"expected at most {HEAD_LIMIT} bytes of request line and headers, got more"))
        elif self._in_head and self._patience is None:
            self._wait_for_head()
        elif self._in_body and self._is_new:
            self._look_ahead()

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._in_head, self._spare = True, HEAD_LIMIT + self._read
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Hand the request to the application."""
        self._in_head, self._in_body, self._is_new = False, True, True
        self.link = Link(self.tasks)
        self.scope[CONNECTION] = self.link  # pyright: ignore[reportGeneralTypeIssues] - uvicorn's type of a scope is closed
        if self._patience is not None:
            self._stop_waiting()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._spare += 2 * len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request."""
        self._in_body = False
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP."""
        self._refuse(Malformed(f"expected an HTTP/1.1 request: {msg}"))

    def _look_ahead(self) -> None:
        """Let the rest of a large body pass the parser by, where the application has memory for it."""
        self._is_new = False
        size = int(dict(self.headers).get(b"content-length", b"0"))
        if size - len(self.cycle.body) >= LARGE:
            self.link.zero_copy = ZeroCopyBody(self, self.cycle, size)

    def _wait_for_head(self) -> None:
        self._patience = self.loop.call_later(HEAD_S, self._lose_patience)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _lose_patience(self) -> None:
        self._refuse(BodyTooSlow(f"expected the request headers within {HEAD_S:g} s"))

    def _refuse(self, error: PullbackError) -> None:
        status, headers, body = render(error, "")
        lines = [*self.server_state.default_headers, *headers, (b"connection", b"close")]
        head = b"".join(name + b": " + value + b"\r\n" for name, value in lines)
        self.transport.write(STATUS_LINE.get(status, b"HTTP/1.1 %d \r\n" % status) + head + b"\r\n" + body)
        self.transport.close()


def without_upgrade(data: bytes) -> bytes:
    """Return ``data`` without an offer to change the protocol in the head that it begins with.

    A server may ignore such offers, and httptools does worse: it drops the body of the request. Java's client makes
    one with its first request on a connection.
    """
    head = data[: data.find(b"\r\n\r\n")]
    if b"\nupgrade:" not in head.lower():
        return data
    return UPGRADE.sub(b"\nx-upgrade:", head) + data[len(head) :]
