"""The connections of a client: the idle ones, and how new ones are made."""

import contextlib
import socket
import ssl
import time
from abc import ABC, abstractmethod
from collections import deque
from concurrent.futures import Future
from functools import cached_property
from typing import Any, Protocol, TypeVar

import httptools

from pullback.addresses import Address
from pullback.calls import Call
from pullback.failures import cannot_connect, failure
from pullback.http1 import NoResponse, Requests
from pullback.limits import Limit
from pullback.lookup import look_up, shares, until
from pullback.responses import Response

T = TypeVar("T")


class Connection(Protocol):
    """A connection, for one request at a time."""

    is_reusable: bool
    """Whether the last exchange left it ready for another."""

    @property
    def is_usable(self) -> bool:
        """Whether an idle connection can take a request: it is not old, and the server has not closed it."""
        ...

    async def exchange(self, head: bytes, call: Call[Any], limit: Limit) -> Response:
        """Send a request and return the response; raise ``NoResponse`` or another ``OSError`` if there is none."""
        ...

    def close(self) -> None:
        """Close the connection at once."""
        ...


class Sockets(ABC):
    """Makes connections; every wait raises ``TimeoutError`` after so many seconds."""

    @abstractmethod
    async def result(self, future: Future[T], seconds: float) -> T:
        """Wait for the result of another thread."""

    @abstractmethod
    async def connect(self, family: int, address: Any, seconds: float) -> socket.socket:
        """Return a socket that is connected to an address."""

    @abstractmethod
    async def start(
        self, opened: socket.socket, tls: ssl.SSLContext | None, host: str, timeout: float | None, seconds: float
    ) -> Connection:
        """Return a connection on a socket, after the handshake of TLS; ``timeout`` limits each wait of a call."""


class Connections:
    """The connections to an address. Threads may share them, and each uses one at a time."""

    def __init__(self, address: Address, sockets: Sockets) -> None:
        """Connect to nothing yet."""
        self._address, self._sockets = address, sockets
        self._requests = Requests(address)
        self._idle: deque[Connection] = deque()
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
        # Another thread may take the last one meanwhile.
        with contextlib.suppress(IndexError):
            while True:
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
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            if connection.is_usable:
                return connection
            connection.close()

    async def _connect(self, limit: Limit) -> Connection:
        address = self._address
        try:
            end = time.monotonic() + address.connect_seconds(limit)
            # Settings that cannot be read are the first error.
            tls = self._tls
            opened = await self._open(end)
            return await self._sockets.start(opened, tls, address.location.host, address.timeout, until(end))
        except (OSError, UnicodeError) as error:
            raise cannot_connect(address, error, limit) from error

    async def _open(self, end: float) -> socket.socket:
        """Return a socket that is connected to one of the host's addresses, tried in order until ``end``."""
        address, sockets = self._address, self._sockets
        if address.socket_path is not None:
            return await sockets.connect(socket.AF_UNIX, address.socket_path, until(end))
        failed: OSError = OSError("no address")
        addresses = await sockets.result(look_up(address.location.host, address.port), until(end))
        for found, seconds in shares(addresses, end):
            try:
                opened = await sockets.connect(found.family, found.address, seconds)
            except OSError as error:
                failed = error
            else:
                opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return opened
        raise failed

    @cached_property
    def _tls(self) -> ssl.SSLContext | None:
        return self._address.tls_context()
