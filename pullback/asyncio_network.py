"""The network of the asyncio client, in one event loop."""

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from concurrent.futures import Future
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cached_property, partial
from typing import Any, TypeVar

import httpx

from pullback.addresses import Address
from pullback.asyncio_connection import AsyncioConnection
from pullback.calls import Call
from pullback.connections import Sockets
from pullback.failures import handshake_failed
from pullback.http1 import IDLE_S
from pullback.limits import Limit
from pullback.network import Network, NextChunk
from pullback.responses import Response

T = TypeVar("T")


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


class AsyncioNetwork(Network):
    """The connections of a client in one event loop; the semaphore limits how many calls it sends at a time."""

    def __init__(
        self,
        address: Address,
        transport: httpx.AsyncBaseTransport | None,
        http_client: httpx.AsyncClient | None,
        concurrency: int,
    ) -> None:
        """Belong to the event loop that runs."""
        super().__init__(address, AsyncioSockets(), transport, http_client)
        self._address, self._transport, self._http_client = address, transport, http_client
        self._loop = asyncio.get_running_loop()
        self.semaphore = asyncio.Semaphore(concurrency)

    @property
    def is_current(self) -> bool:
        """Whether the running event loop is the one where it was made."""
        return self._loop is asyncio.get_running_loop()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    @asynccontextmanager
    async def stream(self, call: Call[Any], limit: Limit) -> AsyncGenerator[tuple[Response, NextChunk], None]:
        """Send a call by httpx; yield the response without its content, and the function that receives that."""
        content, options = call.body and call.body.async_content, self._address.request_options(call, limit)
        if self._http_client is None:
            options["extensions"] = {"timeout": self._address.timeouts()}
        async with AsyncExitStack() as stack:
            # A limit around the whole would also cancel the code of the caller, which runs between the chunks.
            async with asyncio.timeout(limit.wait(None)):
                sent = self._http.stream(content=content, **options)
                response = await stack.enter_async_context(sent)
            start = Response(response.status_code, response.headers, b"")
            yield start, partial(self._next, response.aiter_bytes(), limit)

    async def _next(self, chunks: AsyncIterator[bytes], limit: Limit) -> bytes | None:
        async with asyncio.timeout(limit.wait(None)):
            return await anext(chunks, None)

    async def close(self) -> None:
        """Close the connections, in their event loop."""
        if not self.is_current:
            self.abandon()
            return
        if self.connections is not None:
            self.connections.close()
        if "_http" in self.__dict__ and self._http_client is None:
            await self._http.aclose()
        # The event loop closes the sockets after this.
        await asyncio.sleep(0)

    def abandon(self) -> None:
        """Close the connections from another event loop; one that has ended can close none."""
        if self.connections is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.connections.close)

    @cached_property
    def _http(self) -> httpx.AsyncClient:
        if self._http_client is not None:
            return self._http_client
        if self._transport is not None:
            return httpx.AsyncClient(transport=self._transport)
        address, proxy = self._address, self._address.httpx_proxy()
        # Without a proxy it sends streams only, each on a new connection, which the server cannot have closed.
        kept = 0 if proxy is None else None
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=kept, keepalive_expiry=IDLE_S)
        tls = address.tls_context() or False
        transport = httpx.AsyncHTTPTransport(verify=tls, limits=limits, proxy=proxy, uds=address.socket_path)
        return httpx.AsyncClient(transport=transport)
