"""The connections of the asyncio client: a small request is one write, one callback and one future."""

import asyncio
import os
import socket
import ssl
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pullback.addresses import Address
from pullback.bodies import Body
from pullback.calls import Call
from pullback.connections import Connections, Sockets
from pullback.exchange import Exchange
from pullback.failures import handshake_failed
from pullback.http1 import IDLE_S, NoResponse, is_small, joined
from pullback.limits import Limit
from pullback.responses import Response
from pullback.safetensors import Buffer
from pullback.transport import Transport

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")


class AsyncioConnection(asyncio.Protocol):
    """A connection, for one request at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout: float | None) -> None:
        """Wait for the transport; ``timeout`` limits each wait of a call."""
        self._loop, self._timeout = loop, timeout
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._writable: asyncio.Future[None] | None = None
        self._active = time.monotonic()
        self.is_reusable = False

    @property
    def is_old(self) -> bool:
        """Whether it has been idle for too long to be used again."""
        return time.monotonic() - self._active >= IDLE_S

    @property
    def is_usable(self) -> bool:
        """Whether an idle connection can take a request: it is not old, and the server has not closed it."""
        transport = self._transport
        return transport is not None and not transport.is_closing() and not self.is_old

    async def exchange(self, head: bytes, call: Call[Any], limit: Limit) -> Response:
        """Send a request and return the response; raise ``NoResponse`` or another ``OSError`` if there is none."""
        if (transport := self._transport) is None:
            raise NoResponse
        self._active = time.monotonic()
        exchange = self._exchange = Exchange(self._loop)
        self._watch_time(exchange, limit)
        is_sent = True
        try:
            if call.body is None or is_small(head, call.body):
                transport.write(joined(head, call.body))
            else:
                is_sent = await self._send_large(transport, head, call.body, exchange)
            await exchange.ended
        finally:
            self._exchange = None
            if self._timer is not None:
                self._timer.cancel()
        if exchange.error is not None:
            raise exchange.error
        self.is_reusable = exchange.parser.keeps_alive and is_sent and transport.get_write_buffer_size() == 0
        return exchange.parser.finish()

    async def start(self, head: bytes, call: Call[Any], limit: Limit) -> Response:
        """Send a request and return the response without its content, which ``more`` returns; raise as ``exchange``."""
        if self._transport is None:
            raise NoResponse
        exchange = self._exchange = Exchange(self._loop, is_stream=True)
        self._transport.write(joined(head, call.body))
        parser = exchange.parser
        await self._arrival(exchange, limit, lambda: parser.is_final)
        return Response(parser.status, parser.headers, b"")

    async def more(self, limit: Limit) -> bytes | None:
        """Return the next part of the content, ``None`` at the end; raise as ``exchange``."""
        if (exchange := self._exchange) is None:
            raise NoResponse
        parser = exchange.parser
        limit.wait(None)
        await self._arrival(exchange, limit, lambda: parser.has_content or parser.is_complete)
        return parser.take() or None

    async def _arrival(self, exchange: Exchange, limit: Limit, has_arrived: Callable[[], bool]) -> None:
        """Read until something has arrived."""
        transport = self._transport
        while not has_arrived():
            if exchange.ended.done() or transport is None:
                raise exchange.error or ConnectionResetError()
            exchange.arrived = self._loop.create_future()
            transport.resume_reading()
            async with asyncio.timeout(limit.wait(self._timeout)):
                await exchange.arrived

    def close(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    async def _send_large(self, transport: asyncio.Transport, head: bytes, body: Body, exchange: Exchange) -> bool:
        """Send a request in pieces, until the server answers; report whether all of it was sent."""
        if transport.get_extra_info("ssl_object") is None:
            # The transport would copy what the socket does not take, and a failed write would end its reading. On a
            # copy of the descriptor, neither happens.
            with socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno())) as opened:
                return await self._send_to(opened, (head, *body.chunks()), exchange)
        transport.write(head)
        for chunk in body.chunks():
            if self._writable is not None:
                await self._writable
                self._active = time.monotonic()
            if exchange.ended.done() or transport.is_closing():
                return False
            transport.write(chunk)
        return True

    async def _send_to(self, opened: socket.socket, chunks: Iterable[Buffer], exchange: Exchange) -> bool:
        for chunk in chunks:
            rest = memoryview(chunk)
            while rest:
                if exchange.ended.done():
                    return False
                try:
                    rest = rest[opened.send(rest) :]
                except BlockingIOError:
                    await self._wait_for(opened)
                except OSError:
                    # The server has closed the connection; its response, if there is one, says why.
                    return False
        return True

    async def _wait_for(self, opened: socket.socket) -> None:
        """Wait until the socket takes bytes, or the exchange ends."""
        self.pause_writing()
        self._loop.add_writer(opened, self.resume_writing)
        try:
            if self._writable is not None:
                await self._writable
        finally:
            self._loop.remove_writer(opened)
            self._active = time.monotonic()

    def _watch_time(self, exchange: Exchange, limit: Limit) -> None:
        """End an exchange when the limit has passed, or when nothing has happened for the timeout."""
        self._timer = None
        try:
            wait = limit.wait(None if self._timeout is None else self._active + self._timeout - time.monotonic())
            if wait is None:
                return
            if wait <= 0:
                raise TimeoutError
        except TimeoutError as error:
            exchange.end(error)
            self.resume_writing()
        else:
            self._timer = self._loop.call_later(wait, self._watch_time, exchange, limit)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Parse a part of the response; close a connection that gets more, or is idle."""
        if (exchange := self._exchange) is None or exchange.ended.done():
            self.close()
            return
        self._active = time.monotonic()
        rest = exchange.feed(data)
        if exchange.is_stream and self._transport is not None:
            # The caller takes the content in parts, and the next one when he has taken this one.
            self._transport.pause_reading()
            exchange.wake()
        if exchange.ended.done():
            # A sender stops if the server has answered.
            self.resume_writing()
        elif rest is not None and self._transport is not None:
            self._transport.set_protocol(Rest(self, rest, self._transport))

    def filled(self) -> None:
        """Count a part of the response that needs no parser as activity."""
        self._active = time.monotonic()

    def complete(self) -> None:
        """End the exchange, whose response is complete without the parser."""
        if self._exchange is not None:
            self._exchange.end()
        self.resume_writing()

    def pause_writing(self) -> None:
        """Let senders wait."""
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        """Wake the sender."""
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    def connection_lost(self, exc: Exception | None) -> None:
        """End the exchange."""
        if (exchange := self._exchange) is not None:
            exchange.lose()
        self.resume_writing()


class Rest(asyncio.BufferedProtocol):
    """Receives the rest of a long response into its memory."""

    def __init__(self, connection: AsyncioConnection, rest: memoryview, transport: asyncio.Transport) -> None:
        """Replace the connection as the protocol of its transport."""
        self._connection, self._rest, self._transport = connection, rest, transport
        self.pause_writing, self.resume_writing = connection.pause_writing, connection.resume_writing
        self.connection_lost = connection.connection_lost

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the memory for the bytes that are still to come."""
        return self._rest

    def buffer_updated(self, nbytes: int) -> None:
        """Count bytes; return to the connection at the end."""
        self._rest = self._rest[nbytes:]
        self._connection.filled()
        if not self._rest:
            self._transport.set_protocol(self._connection)
            self._connection.complete()


class AsyncioSockets(Sockets):
    """Makes connections in the running event loop."""

    async def result(self, future: Future[T], seconds: float) -> T:
        """Wait for the result of another thread."""
        async with asyncio.timeout(seconds):
            return await asyncio.wrap_future(future)

    async def connect(self, family: int, address: Any, seconds: float) -> socket.socket:
        """Return a socket that is connected to an address."""
        opened = socket.socket(family, socket.SOCK_STREAM)
        try:
            opened.setblocking(False)
            async with asyncio.timeout(seconds):
                await asyncio.get_running_loop().sock_connect(opened, address)
        except BaseException:
            opened.close()
            raise
        return opened

    async def send(self, opened: socket.socket, data: bytes, seconds: float) -> None:
        """Send bytes on a new socket."""
        async with asyncio.timeout(seconds):
            await asyncio.get_running_loop().sock_sendall(opened, data)

    async def receive(self, opened: socket.socket, seconds: float) -> bytes:
        """Receive a byte on a new socket, none if it is closed."""
        async with asyncio.timeout(seconds):
            return await asyncio.get_running_loop().sock_recv(opened, 1)

    async def start(
        self, opened: socket.socket, tls: ssl.SSLContext | None, host: str, timeout: float | None, seconds: float
    ) -> AsyncioConnection:
        """Return a connection on a socket; it closes the socket if the handshake of TLS fails."""
        loop = asyncio.get_running_loop()
        new = partial(AsyncioConnection, loop, timeout)
        if tls is None:
            create = loop.create_unix_connection if opened.family == socket.AF_UNIX else loop.create_connection
            return (await create(new, sock=opened))[1]
        create = partial(loop.create_connection, ssl=tls, server_hostname=host, ssl_handshake_timeout=seconds)
        try:
            # If the wait was cancelled instead, asyncio and uvloop would leave the socket open.
            with handshake_failed():
                return (await create(new, sock=opened))[1]
        except ConnectionAbortedError:
            raise TimeoutError("no handshake of TLS in time") from None


def new_transport(
    address: Address, transport: "httpx.AsyncBaseTransport | None", http_client: "httpx.AsyncClient | None"
) -> Transport:
    """Return connections to an address, or httpx with this transport or client, or for a proxy that only it can use."""
    if transport is None and http_client is None and not address.needs_httpx:
        return Connections(address, AsyncioSockets())
    from pullback.httpx_transport import AsyncioHttpx  # noqa: PLC0415 - it may not be installed

    return AsyncioHttpx(address, transport, http_client)
