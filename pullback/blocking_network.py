"""The network of the blocking client: every coroutine blocks the thread, and none suspends."""

import os
import socket
import ssl
import time
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from functools import cached_property, partial
from typing import Any, TypeVar

import httpx

from pullback.addresses import Address
from pullback.blocking_connection import BlockingConnection
from pullback.call_timeout import timeouts
from pullback.calls import Call
from pullback.connections import Sockets
from pullback.failures import handshake_failed
from pullback.limits import Limit
from pullback.network import Network, NextChunk
from pullback.responses import Response

T = TypeVar("T")


class BlockingSockets(Sockets):
    """Makes connections, and blocks the thread meanwhile."""

    async def result(self, future: Future[T], seconds: float) -> T:
        """Wait for the result of another thread."""
        return future.result(seconds)

    async def connect(self, family: int, address: Any, seconds: float) -> socket.socket:
        """Return a socket that is connected to an address."""
        opened = socket.socket(family, socket.SOCK_STREAM)
        try:
            opened.settimeout(seconds)
            opened.connect(address)
        except BaseException:
            opened.close()
            raise
        return opened

    async def start(
        self, opened: socket.socket, tls: ssl.SSLContext | None, host: str, timeout: float | None, seconds: float
    ) -> BlockingConnection:
        """Return a connection on a socket, after the handshake of TLS."""
        if tls is not None:
            opened.settimeout(seconds)
            with handshake_failed():
                opened = tls.wrap_socket(opened, server_hostname=host)
        return BlockingConnection(opened, timeout)


class BlockingNetwork(Network):
    """The connections of a client in one process; threads share them."""

    def __init__(
        self, address: Address, transport: httpx.BaseTransport | None, http_client: httpx.Client | None
    ) -> None:
        """Belong to this process."""
        super().__init__(address, BlockingSockets(), transport, http_client)
        self._address, self._transport, self._http_client = address, transport, http_client
        self._process = os.getpid()

    @property
    def is_current(self) -> bool:
        """Whether this process is the one where it was made, and not a fork of it."""
        return self._process == os.getpid()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    @asynccontextmanager
    async def stream(self, call: Call[Any], limit: Limit) -> AsyncGenerator[tuple[Response, NextChunk], None]:
        """Send a call by httpx; yield the response without its content, and the function that receives that."""
        content, options = call.body and call.body.content, self._address.request_options(call, limit)
        if self._http_client is None or limit.seconds is not None:
            options["extensions"] = {"timeout": timeouts(self._address, limit)}
        with self._http.stream(content=content, **options) as response:
            start = Response(response.status_code, response.headers, b"")
            yield start, partial(self._next, response.iter_bytes(), limit)

    async def _next(self, chunks: Iterator[bytes], limit: Limit) -> bytes | None:
        limit.wait(None)
        return next(chunks, None)

    async def close(self) -> None:
        """Close the connections."""
        self.abandon()
        if "_http" in self.__dict__ and self._http_client is None:
            self._http.close()

    def abandon(self) -> None:
        """Close this process's copies of the connections that the parent still uses."""
        if self.connections is not None:
            self.connections.close()

    @cached_property
    def _http(self) -> httpx.Client:
        if self._http_client is not None:
            return self._http_client
        # httpcore takes a while to import, and a client without streams and without a proxy does not need it.
        from pullback.limited_transport import LimitedTransport  # noqa: PLC0415

        return httpx.Client(transport=self._transport or LimitedTransport(self._address))
