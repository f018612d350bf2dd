"""The connections of a client: the idle ones, and how new ones are made."""

import contextlib
import ipaddress
import socket
import ssl
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, Generator, Iterator, Sequence
from concurrent.futures import Future
from functools import cached_property, partial
from http.client import responses
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import httptools

from pullback.addresses import Address, Url
from pullback.calls import Call
from pullback.failures import cannot_connect, failure
from pullback.http1 import NoResponse, Requests, ResponseParser
from pullback.limits import LONGEST_S, Limit
from pullback.reading import SUCCESS
from pullback.responses import Response
from pullback.transport import NextChunk, Transport

Found: TypeAlias = "Future[list[SocketAddress]]"
T = TypeVar("T")
FAILURES = (OSError, MemoryError, httptools.HttpParserError)


class SocketAddress(NamedTuple):
    """A socket address of a host, and its family."""

    family: int
    address: Any


def look_up(host: str, port: int) -> Found:
    """Look up the addresses of a host, in a new thread unless it is an IP address."""
    found: Found = Future()
    # Now a waiting task cannot cancel it: the thread always sets its result.
    found.set_running_or_notify_cancel()
    if _is_ip(host):
        _look_up(host, port, found)
    else:
        threading.Thread(target=_look_up, args=(host, port, found), daemon=True).start()
    return found


def shares(addresses: Sequence[SocketAddress], end: float) -> Iterator[tuple[SocketAddress, float]]:
    """Yield each address with the seconds to try it: an equal share of what is left until ``end``, of the clock.

    Raises ``TimeoutError`` when nothing is left.
    """
    for done, address in enumerate(addresses):
        yield address, until(end) / (len(addresses) - done)


def until(end: float) -> float:
    """Return the seconds until ``end``, a time of ``time.monotonic``; raise ``TimeoutError`` after that."""
    if (left := end - time.monotonic()) <= 0:
        raise TimeoutError("timed out")
    return left


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _look_up(host: str, port: int, found: Found) -> None:
    try:
        results = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        found.set_exception(error)
    else:
        found.set_result([SocketAddress(family, address) for family, _, _, _, address in results])


class Connection(Protocol):
    """A connection, for one request at a time."""

    is_reusable: bool
    """Whether the last exchange left it ready for another."""

    @property
    def is_old(self) -> bool:
        """Whether it has been idle for too long to be used again."""
        ...

    @property
    def is_usable(self) -> bool:
        """Whether an idle connection can take a request: it is not old, and the server has not closed it."""
        ...

    async def exchange(self, head: bytes, call: Call[Any], limit: Limit) -> Response:
        """Send a request and return the response; raise ``NoResponse`` or another ``OSError`` if there is none."""
        ...

    async def start(self, head: bytes, call: Call[Any], limit: Limit) -> Response:
        """Send a request and return the response without its content, which ``more`` returns; raise as ``exchange``."""
        ...

    async def more(self, limit: Limit) -> bytes | None:
        """Return the next part of the content, ``None`` at the end; raise as ``exchange``."""
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
    async def send(self, opened: socket.socket, data: bytes, seconds: float) -> None:
        """Send bytes on a new socket."""

    @abstractmethod
    async def receive(self, opened: socket.socket, seconds: float) -> bytes:
        """Receive a byte on a new socket, none if it is closed."""

    @abstractmethod
    async def start(
        self, opened: socket.socket, tls: ssl.SSLContext | None, host: str, timeout: float | None, seconds: float
    ) -> Connection:
        """Return a connection on a socket, after the handshake of TLS; ``timeout`` limits each wait of a call."""


class Connections(Transport):
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
        except FAILURES as error:
            raise failure(self._address, error, limit) from error

    @contextlib.asynccontextmanager
    async def stream(self, call: Call[Any], limit: Limit) -> AsyncGenerator[tuple[Response, NextChunk], None]:
        """Send a call on a new connection, which the server cannot have closed, and close that at the end."""
        with self._failures(limit):
            connection = await self._connect(limit)
        try:
            with self._failures(limit):
                start = await connection.start(self._requests.head(call, limit), call, limit)
            yield start, partial(self._more, connection, limit)
        finally:
            connection.close()

    async def _more(self, connection: Connection, limit: Limit) -> bytes | None:
        with self._failures(limit):
            return await connection.more(limit)

    @contextlib.contextmanager
    def _failures(self, limit: Limit) -> Generator[None]:
        """Turn what an exchange raises into a ``PullbackError``."""
        try:
            yield
        except FAILURES as error:
            raise failure(self._address, error, limit) from error

    async def close(self) -> None:
        """Close the idle connections; those in use close after their response."""
        self.abandon()

    def abandon(self) -> None:
        """Close the idle connections, as ``close`` does."""
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
            self._drop_old()
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

    def _drop_old(self) -> None:
        """Close the connections that have been idle for too long: those at the left, since calls take the last one."""
        # Another thread may take the last one meanwhile.
        with contextlib.suppress(IndexError):
            while self._idle[0].is_old:
                self._idle.popleft().close()

    async def _connect(self, limit: Limit) -> Connection:
        address = self._address
        try:
            # Settings that cannot be read are the first error.
            tls, proxy = self._tls, address.http_proxy()
            opened = await self._open(proxy or address.location, time.monotonic() + address.connect_seconds(limit))
            try:
                if proxy is not None and tls is not None:
                    await self._tunnel(opened, proxy, limit)
                seconds = address.connect_seconds(limit)
            except BaseException:
                opened.close()
                raise
            return await self._sockets.start(opened, tls, address.location.host, address.timeout, seconds)
        except (OSError, UnicodeError) as error:
            raise cannot_connect(address, error, limit) from error

    async def _open(self, server: Url, end: float) -> socket.socket:
        """Return a socket that is connected to one of the server's addresses, tried in order until ``end``."""
        sockets, path = self._sockets, self._address.socket_path
        if path is not None:
            return await sockets.connect(socket.AF_UNIX, path, until(end))
        failed: OSError = OSError("no address")
        addresses = await sockets.result(look_up(server.host, server.port), until(end))
        for found, seconds in shares(addresses, end):
            try:
                opened = await sockets.connect(found.family, found.address, seconds)
            except OSError as error:
                failed = error
            else:
                opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return opened
        raise failed

    async def _tunnel(self, opened: socket.socket, proxy: Url, limit: Limit) -> None:
        """Open a tunnel to the server on a socket that is connected to a proxy."""
        wait, parser = limit.wait(self._address.timeout), ResponseParser()
        end = time.monotonic() + (LONGEST_S if wait is None else wait)
        await self._sockets.send(opened, self._requests.tunnel(proxy), until(end))
        while not parser.is_final:
            if not (data := await self._sockets.receive(opened, until(end))):
                raise ConnectionResetError("it closed the connection")
            parser.feed(data)
        if parser.status not in SUCCESS:
            raise ConnectionRefusedError(f"{parser.status} {responses.get(parser.status, '')}".rstrip())

    @cached_property
    def _tls(self) -> ssl.SSLContext | None:
        return self._address.tls_context()
