"""The connections of the blocking client: a small request is one send and one receive."""

import contextlib
import select
import socket
import ssl
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from pullback.addresses import Address
from pullback.bodies import Body
from pullback.calls import Call
from pullback.connections import Connections, Sockets
from pullback.failures import handshake_failed
from pullback.http1 import IDLE_S, READ, ResponseParser, is_small, joined
from pullback.limits import Limit
from pullback.responses import Response
from pullback.transport import Transport

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")


class BlockingConnection:
    """A connection, for one request at a time."""

    def __init__(self, opened: socket.socket, timeout: float | None) -> None:
        """Take over a connected socket; ``timeout`` limits each wait."""
        self._socket, self._limit_of_waits = opened, timeout
        self._poll = select.poll()
        self._poll.register(opened, select.POLLIN)
        self._used = time.monotonic()
        self._timeout = opened.gettimeout()
        self._parser = ResponseParser()
        self.is_reusable = False

    @property
    def is_old(self) -> bool:
        """Whether it has been idle for too long to be used again."""
        return time.monotonic() - self._used >= IDLE_S

    @property
    def is_usable(self) -> bool:
        """Whether an idle connection can take a request: it is not old, and the server has not closed it."""
        return not self.is_old and not self._poll.poll(0)

    async def exchange(self, head: bytes, call: Call[Any], limit: Limit) -> Response:
        """Send a request and return the response; raise ``NoResponse`` or another ``OSError`` if there is none."""
        parser = ResponseParser()
        with _Lost(parser):
            is_sent = self._send(head, call, parser, limit)
            while not parser.is_complete:
                self._receive(parser, limit)
        self.is_reusable = parser.keeps_alive and is_sent
        self._used = time.monotonic()
        return parser.finish()

    async def start(self, head: bytes, call: Call[Any], limit: Limit) -> Response:
        """Send a request and return the response without its content, which ``more`` returns; raise as ``exchange``."""
        parser = self._parser
        with _Lost(parser):
            self._send(head, call, parser, limit)
            while not parser.is_final:
                self._feed(parser, limit)
        return Response(parser.status, parser.headers, b"")

    async def more(self, limit: Limit) -> bytes | None:
        """Return the next part of the content, ``None`` at the end; raise as ``exchange``."""
        parser = self._parser
        with _Lost(parser):
            limit.wait(None)
            while not (content := parser.take()) and not parser.is_complete:
                self._feed(parser, limit)
        return content or None

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def __del__(self) -> None:
        # Nobody closes the client of an op that was copied, as into another process.
        self.close()

    def _send(self, head: bytes, call: Call[Any], parser: ResponseParser, limit: Limit) -> bool:
        """Send a request, and report whether all of it was sent.

        A server that refuses a request may close the connection before the end; its response says why.
        """
        try:
            self._wait(limit)
            if call.body is None or is_small(head, call.body):
                self._socket.sendall(joined(head, call.body))
                return True
            self._socket.sendall(head)
            return self._send_large(call.body, parser, limit)
        except TimeoutError:
            raise
        except OSError:
            return False

    def _send_large(self, body: Body, parser: ResponseParser, limit: Limit) -> bool:
        """Send a body in pieces, until the server answers."""
        for chunk in body.chunks():
            rest = memoryview(chunk)
            while rest:
                is_readable = self._wait_for_either(limit)
                # Bytes may be those of TLS itself.
                with contextlib.suppress(BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    if is_readable:
                        self._parse(parser)
                    else:
                        rest = rest[self._socket.send(rest) :]
                if parser.is_complete:
                    return False
        return True

    def _wait_for_either(self, limit: Limit) -> bool:
        """Wait until the server takes or sends bytes; report whether it has sent some. The socket never waits."""
        timeout = limit.wait(self._limit_of_waits)
        self._set_timeout(0.0)
        self._poll.modify(self._socket, select.POLLIN | select.POLLOUT)
        events = self._poll.poll(None if timeout is None else 1000 * timeout)
        self._poll.modify(self._socket, select.POLLIN)
        if not events:
            raise TimeoutError
        return bool(events[0][1] & select.POLLIN)

    def _feed(self, parser: ResponseParser, limit: Limit) -> None:
        self._wait(limit)
        self._parse(parser)

    def _parse(self, parser: ResponseParser) -> None:
        if data := self._socket.recv(READ):
            parser.feed(data)
        else:
            parser.end()

    def _receive(self, parser: ResponseParser, limit: Limit) -> None:
        self._feed(parser, limit)
        if (rest := parser.rest()) is not None:
            self._fill(rest, limit)
            parser.is_complete = True

    def _fill(self, rest: memoryview, limit: Limit) -> None:
        while rest:
            self._wait(limit)
            count = self._socket.recv_into(rest)
            if not count:
                raise ConnectionResetError
            rest = rest[count:]

    def _wait(self, limit: Limit) -> None:
        self._set_timeout(limit.wait(self._limit_of_waits))

    def _set_timeout(self, timeout: float | None) -> None:
        # To set the same again would cost a system call.
        if timeout != self._timeout:
            self._socket.settimeout(timeout)
            self._timeout = timeout


class _Lost:
    """Turns the errors of a socket into those of its response, unless the time is up."""

    def __init__(self, parser: ResponseParser) -> None:
        self._parser = parser

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, TimeoutError):
            raise self._parser.lost() from error


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

    async def send(self, opened: socket.socket, data: bytes, seconds: float) -> None:
        """Send bytes on a new socket."""
        opened.settimeout(seconds)
        opened.sendall(data)

    async def receive(self, opened: socket.socket, seconds: float) -> bytes:
        """Receive a byte on a new socket, none if it is closed."""
        opened.settimeout(seconds)
        return opened.recv(1)

    async def start(
        self, opened: socket.socket, tls: ssl.SSLContext | None, host: str, timeout: float | None, seconds: float
    ) -> BlockingConnection:
        """Return a connection on a socket, after the handshake of TLS."""
        if tls is not None:
            opened.settimeout(seconds)
            with handshake_failed():
                opened = tls.wrap_socket(opened, server_hostname=host)
        return BlockingConnection(opened, timeout)


def new_transport(
    address: Address, transport: "httpx.BaseTransport | None" = None, http_client: "httpx.Client | None" = None
) -> Transport:
    """Return connections to an address, or httpx with this transport or client, or for a proxy that only it can use."""
    if transport is None and http_client is None and not address.needs_httpx:
        return Connections(address, BlockingSockets())
    from pullback.httpx_transport import BlockingHttpx  # noqa: PLC0415 - it may not be installed

    return BlockingHttpx(address, transport, http_client)
