"""Connections: uvicorn's protocol, with limits on the headers, and with our errors for requests that are not HTTP.

By default uvicorn on httptools accepts headers of any size, and waits for them without a limit.
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
"""The key in a request's scope for the ``Link`` that the connection passes to it."""
UPGRADE = re.compile(rb"\nupgrade:", re.IGNORECASE)
# Longer pieces are written separately: copying them would cost more than the system call that it saves.
JOINED = 1 << 15


@dataclass(slots=True)
class Link:
    """What a connection passes to a request: the tasks of all requests in this process, and the zero-copy body."""

    tasks: set[asyncio.Task[None]]
    zero_copy: ZeroCopyBody | None = None


class HeadCoalescing:
    """A wrapper of a transport that sends the head of a response with the body, one loop iteration later at most.

    The server writes heads and bodies separately, each with a system call and a packet.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        """Wrap ``transport``."""
        self._transport, self._loop, self._head = transport, loop, b""

    def __getattr__(self, name: str) -> Any:
        """Return every other attribute of the wrapped transport."""
        return getattr(self._transport, name)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send ``data``, or keep a head until the body follows."""
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
        """Send a head that was kept, and close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        head, self._head = self._head, b""
        if head and not self._transport.is_closing():
            self._transport.write(head)


class Connection(HttpToolsProtocol):
    """One connection.

    The part of a request that is not body may exceed the size of the body by ``HEAD_LIMIT`` bytes: the request line and
    the headers, then the chunk frames and the trailers. Each read is checked after it is parsed, so the limit is exact
    to one read. Headers must end within ``HEAD_S`` after their first byte, those of the first request after the
    connection opens.
    """

    _read_size = 0
    _allowance = HEAD_LIMIT
    _in_head = True
    _in_body = False
    _is_new_body = False
    _head_timer: asyncio.TimerHandle | None = None
    link: Link

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start to wait for the first request."""
        super().connection_made(cast(asyncio.Transport, HeadCoalescing(cast(asyncio.Transport, transport), self.loop)))
        self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_head_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse the data and enforce the limits; start zero-copy reading of a large body."""
        self._read_size = len(data)
        super().data_received(data if self._in_body else without_upgrade(data))
        self._allowance -= self._read_size
        if self._allowance < 0 and not self.transport.is_closing():
            self._refuse(HeadTooLarge(f"expected at most {HEAD_LIMIT} bytes of request line and headers, got more"))
        elif self._in_head and self._head_timer is None:
            self._start_head_timer()
        elif self._in_body and self._is_new_body:
            self._is_new_body = False
            # The rest of a large body bypasses the parser if the application provides memory for it.
            size = int(dict(self.headers).get(b"content-length", b"0"))
            if size - len(self.cycle.body) >= LARGE:
                self.link.zero_copy = ZeroCopyBody(self, self.cycle, size)

    def on_message_begin(self) -> None:
        """Start a request."""
        self._in_head, self._allowance = True, HEAD_LIMIT + self._read_size
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Pass the request to the application."""
        self._in_head, self._in_body, self._is_new_body = False, True, True
        self.link = Link(self.tasks)
        self.scope[CONNECTION] = self.link  # pyright: ignore[reportGeneralTypeIssues] - uvicorn's type of a scope is closed
        if self._head_timer is not None:
            self._stop_head_timer()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Receive a part of the body."""
        self._allowance += 2 * len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request."""
        self._in_body = False
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse data that is not HTTP."""
        self._refuse(Malformed(f"expected an HTTP/1.1 request: {msg}"))

    def _start_head_timer(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_S, self._on_head_timeout)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _on_head_timeout(self) -> None:
        self._refuse(BodyTooSlow(f"expected the request headers within {HEAD_S:g} s"))

    def _refuse(self, error: PullbackError) -> None:
        status, headers, body = render(error, "")
        lines = [*self.server_state.default_headers, *headers, (b"connection", b"close")]
        head = b"".join(name + b": " + value + b"\r\n" for name, value in lines)
        self.transport.write(STATUS_LINE.get(status, b"HTTP/1.1 %d \r\n" % status) + head + b"\r\n" + body)
        self.transport.close()


def without_upgrade(data: bytes) -> bytes:
    """Return ``data`` without an ``Upgrade`` header in the head that it begins with.

    A server may ignore this header, but httptools drops the body of a request that has one. Java's client sends it with
    its first request on a connection.
    """
    head = data[: data.find(b"\r\n\r\n")]
    if b"\nupgrade:" not in head.lower():
        return data
    return UPGRADE.sub(b"\nx-upgrade:", head) + data[len(head) :]
