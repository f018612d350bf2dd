"""Connections of the asyncio client: the idle ones, and how new ones are made."""

import asyncio
import socket
import ssl
import time
from functools import cached_property, partial
from typing import Any

import httptools

from pullback.addresses import Address
from pullback.async_protocol import Connection
from pullback.calls import Call
from pullback.failures import cannot_connect, failure, handshake_failed
from pullback.http1 import NoResponse, Requests
from pullback.limits import Limit
from pullback.lookup import Place, look_up, shares, until
from pullback.responses import Response


class AsyncConnections:
    """The connections to an address, in the event loop that runs."""

    def __init__(self, address: Address) -> None:
        """Connect to nothing yet."""
        self._address, self._requests = address, Requests(address)
        self._loop = asyncio.get_running_loop()
        self._idle: list[Connection] = []
        self._is_closed = False

    async def exchange(self, call: Call[Any], limit: Limit) -> Response:
        """Send a call and return the response; raise a ``PullbackError`` if there is none."""
        try:
            if (kept := self._idle_connection()) is not None:
                try:
                    return await self._exchange(kept, call, limit)
                except NoResponse:
                    if not call.may_repeat:
                        raise
            return await self._exchange(await self._connect(limit), call, limit)
        except (OSError, MemoryError, httptools.HttpParserError) as error:
            raise failure(self._address, error, limit) from error

    def close(self) -> None:
        """Close the idle connections; those in use close after their response."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()

    async def _exchange(self, connection: Connection, call: Call[Any], limit: Limit) -> Response:
        try:
            response = await connection.exchange(self._requests.head(call, limit), call, limit)
        except BaseException:
            connection.close()
            raise
        if connection.is_reusable and not self._is_closed:
            self._idle.append(connection)
        else:
            connection.close()
        return response

    def _idle_connection(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable:
                return connection
            connection.close()
        return None

    async def _connect(self, limit: Limit) -> Connection:
        path, host, tls = self._address.socket_path, self._address.location.host, self._tls
        try:
            end = time.monotonic() + self._address.connect_seconds(limit)
            async with asyncio.timeout(until(end)):
                if path is not None:
                    return (await self._loop.create_unix_connection(self._new, path))[1]
                opened = await self._open_tcp(host, self._address.port, end)
            return await self._wrapped(opened, host, tls, until(end))
        except (OSError, UnicodeError) as error:
            raise cannot_connect(self._address, error, limit) from error

    async def _wrapped(
        self, opened: socket.socket, host: str, tls: ssl.SSLContext | None, seconds: float
    ) -> Connection:
        """Return a connection on a socket; it closes the socket if the handshake of TLS fails."""
        create = partial(self._loop.create_connection, self._new, sock=opened)
        if tls is None:
            return (await create())[1]
        try:
            # If the wait was cancelled instead, asyncio and uvloop would leave the socket open.
            with handshake_failed():
                return (await create(ssl=tls, server_hostname=host, ssl_handshake_timeout=seconds))[1]
        except ConnectionAbortedError:
            raise TimeoutError("no handshake of TLS in time") from None

    async def _open_tcp(self, host: str, port: int, end: float) -> socket.socket:
        """Return a socket that is connected to one of a host's addresses, tried in order."""
        failed: OSError = OSError("no address")
        for place, seconds in shares(await asyncio.wrap_future(look_up(host, port)), end):
            try:
                async with asyncio.timeout(min(seconds, until(end))):
                    return await self._open(place)
            except OSError as error:
                failed = error
        raise failed

    async def _open(self, place: Place) -> socket.socket:
        opened = socket.socket(place.family, socket.SOCK_STREAM)
        try:
            opened.setblocking(False)
            await self._loop.sock_connect(opened, place.address)
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except BaseException:
            opened.close()
            raise
        return opened

    def _new(self) -> Connection:
        return Connection(self._loop, self._address.timeout)

    @cached_property
    def _tls(self) -> ssl.SSLContext | None:
        return self._address.tls_context()
