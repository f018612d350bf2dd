"""Passes the bytes between an application and a server, in both directions, as they come."""

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import responses
from typing import cast

from pullback.recorder.messages import Content, Exchange, RequestReader, ResponseReader, Room
from pullback.urls import Url

MAX_IN_FLIGHT = 64 << 20
"""The most bytes of bodies that are kept until their response has come."""
EARLY = 1 << 18
"""How many bytes may come before the server is connected."""
CONNECT_S = 10.0
LINGER_S = 2.0
"""How long an error of the relay waits for the application to read it."""


@dataclass(eq=False)
class Traffic:
    """The connections of an application to a server at ``url``, at most ``most`` at a time.

    ``is_wanted(method, target)`` says which bodies to keep; ``seen(exchange)`` is called with each exchange that has
    them, and they are dropped afterwards.
    """

    url: Url
    shown: str
    tls: ssl.SSLContext | None
    is_wanted: Callable[[str, str], bool]
    seen: Callable[[Exchange], None]
    most: int
    port: int = 0
    in_flight: int = 0
    requests: int = 0
    refused: int = 0
    unread: int = 0
    """The connections whose bytes could not be read as HTTP/1.1."""
    lost: int = 0
    """The requests that the server did not answer."""
    active: float = 0.0
    """When a request or a response ended or began the last time."""
    sides: "set[ApplicationSide]" = field(default_factory=set["ApplicationSide"])
    _room: Room = field(default_factory=lambda: Room(MAX_IN_FLIGHT))
    _address: tuple[str, int] | None = None

    @property
    def idle_s(self) -> float:
        """How long nothing has been in flight, in seconds."""
        return 0.0 if self.in_flight else time.monotonic() - self.active

    def begin(self, method: str, target: str) -> Exchange:
        """Return the exchange of a request that begins."""
        self.in_flight += 1
        self.requests += 1
        self.active = time.monotonic()
        is_wanted = self.is_wanted(method, target)
        return Exchange(method, target, Content(self._room, is_wanted), Content(self._room, is_wanted))

    def end(self, exchange: Exchange) -> None:
        """Count the end of an exchange that has its response."""
        self.leave(1)
        self.seen(exchange)
        exchange.drop()

    def leave(self, count: int) -> None:
        """Count requests that are no longer in flight."""
        self.in_flight -= count
        self.active = time.monotonic()

    async def connect(self, side: "ApplicationSide") -> None:
        """Connect a side to the server; raise ``OSError``, or ``TimeoutError``.

        The address that a name leads to is kept until a connection there fails.
        """
        loop = asyncio.get_running_loop()
        host = self.url.host if self.tls is not None else None

        async def connected(address: tuple[str, int]) -> None:
            async with asyncio.timeout(CONNECT_S):
                _, server = await loop.create_connection(
                    lambda: ServerSide(side, self), *address, ssl=self.tls, server_hostname=host
                )
            self._address = server.peer

        if self._address is not None:
            try:
                await connected(self._address)
            except OSError:
                self._address = None
            else:
                return
        await connected((self.url.host, self.url.port))


class ApplicationSide(asyncio.Protocol):
    """A connection of the application."""

    def __init__(self, traffic: Traffic) -> None:
        """Wait for the connection."""
        self._traffic = traffic
        self.pending = deque[Exchange]()
        self._reader = RequestReader(traffic.port, traffic.url.netloc, self._begin)
        self._early: list[bytes] = []
        self._early_size = 0
        self._has_ended = self._discards = False
        self._connecting: asyncio.Task[None] | None = None
        self.transport: asyncio.Transport | None = None
        self.server: ServerSide | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connect to the server at once, while the application sends its request."""
        self.transport = cast(asyncio.Transport, transport)
        traffic = self._traffic
        if len(traffic.sides) >= traffic.most:
            traffic.refused += 1
            self.answer(503, f"expected at most {traffic.most} connections at a time, got more: close some")
            return
        traffic.sides.add(self)
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        try:
            await self._traffic.connect(self)
        except OSError as error:
            reason = str(error) or "no connection in time"
            self.answer(502, f"cannot connect to {self._traffic.shown} ({reason}): start the server there")

    def connected(self, server: "ServerSide") -> None:
        """Send what came before the server was connected."""
        self.server = server
        if self.transport is None or self.transport.is_closing():
            server.close()
            return
        if self._early:
            server.write(b"".join(self._early))
            self._early.clear()
            self.transport.resume_reading()
        if self._has_ended:
            server.end()

    def _begin(self, method: str, target: str) -> Exchange:
        exchange = self._traffic.begin(method, target)
        self.pending.append(exchange)
        return exchange

    def data_received(self, data: bytes) -> None:
        """Pass bytes on to the server."""
        if self._discards:
            return
        was_readable = self._reader.is_readable
        passed = self._reader.feed(data)
        if was_readable and not self._reader.is_readable:
            self.give_up_reading()
        if self.server is not None:
            self.server.write(passed)
        elif passed:
            self._early.append(passed)
            self._early_size += len(passed)
            if self._early_size > EARLY and self.transport is not None:
                self.transport.pause_reading()

    def give_up_reading(self) -> None:
        """Count a connection that can no longer be read; its bytes pass on."""
        self._reader.is_readable = False
        self._traffic.unread += 1
        self._drop_pending()

    def eof_received(self) -> bool:
        """Tell the server that no more comes; its response may still come."""
        self._has_ended = True
        if self.server is not None:
            self.server.end()
        return not self._discards

    def pause_writing(self) -> None:
        """Let the server wait while the application does not read."""
        if self.server is not None:
            self.server.pause()

    def resume_writing(self) -> None:
        """Read from the server again."""
        if self.server is not None:
            self.server.resume()

    def answer(self, status: int, text: str) -> None:
        """Answer in place of the server, and close the connection when the application has read that."""
        if self.transport is None or self.transport.is_closing() or self._discards:
            return
        self._discards = True
        self._traffic.lost += len(self.pending)
        self._drop_pending()
        content = f"pullback record: {text}\n".encode()
        head = f"HTTP/1.1 {status} {responses[status]}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        head += f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
        self.transport.write(head.encode("ascii") + content)
        # To close with bytes unread would reset the connection before the answer is read.
        self.transport.write_eof()
        self.transport.resume_reading()
        asyncio.get_running_loop().call_later(LINGER_S, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the connection to the server."""
        self._traffic.sides.discard(self)
        if self._connecting is not None:
            self._connecting.cancel()
        if self.server is not None:
            self.server.close(is_reset=exc is not None)
        self._drop_pending()

    def _drop_pending(self) -> None:
        self._traffic.leave(len(self.pending))
        for exchange in self.pending:
            exchange.drop()
        self.pending.clear()


class ServerSide(asyncio.Protocol):
    """The connection to the server that belongs to one of the application."""

    def __init__(self, side: ApplicationSide, traffic: Traffic) -> None:
        """Wait for the connection."""
        self._side, self._traffic = side, traffic
        self._reader = ResponseReader(side.pending, traffic.end)
        self._transport: asyncio.Transport | None = None
        self.peer: tuple[str, int] = ("", 0)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast(asyncio.Transport, transport)
        self.peer = transport.get_extra_info("peername")[:2]
        self._side.connected(self)

    def data_received(self, data: bytes) -> None:
        """Pass bytes on to the application, before anything else."""
        side = self._side
        if side.transport is not None:
            side.transport.write(data)
        was_readable = self._reader.is_readable
        self._reader.feed(data)
        if was_readable and not self._reader.is_readable:
            side.give_up_reading()

    def write(self, data: bytes) -> None:
        """Send bytes to the server."""
        if self._transport is not None:
            self._transport.write(data)

    def end(self) -> None:
        """Send the end of the stream, which TLS does not have."""
        if self._transport is not None and self._transport.can_write_eof() and not self._transport.is_closing():
            self._transport.write_eof()

    def pause(self) -> None:
        """Read no more from the server for now."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read from the server again."""
        if self._transport is not None:
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        """Let the application wait while the server does not read."""
        if self._side.transport is not None:
            self._side.transport.pause_reading()

    def resume_writing(self) -> None:
        """Read from the application again."""
        if self._side.transport is not None:
            self._side.transport.resume_reading()

    def close(self, *, is_reset: bool = False) -> None:
        """Close the connection; after a reset of the application's, at once."""
        self._reader.close()
        if self._transport is not None:
            (self._transport.abort if is_reset else self._transport.close)()

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the application's connection in the same way, or say that the server has gone."""
        side, self._transport = self._side, None
        has_begun = self._reader.has_begun
        self._reader.close()
        if side.transport is None:
            return
        if side.pending and not has_begun:
            reason = f" ({exc})" if exc is not None else ""
            side.answer(502, f"{self._traffic.shown} closed the connection before it answered{reason}: see its log")
        elif exc is not None:
            side.transport.abort()
        else:
            side.transport.close()
