"""Connections of the blocking client: a small request is one send and one receive.

httptools parses the responses, as it parses requests in uvicorn.
"""

import contextlib
import os
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Any

import httptools
import httpx
import numpy as np

from pullback.addresses import CONNECT_S, Address
from pullback.calls import Call, Content
from pullback.limits import Limit
from pullback.responses import Response
from pullback.safetensors import Buffer

IDLE_S = 30.0
"""How long a connection may be idle and still be used again, in seconds: less than the patience of load balancers."""
READ = 1 << 16
HEADERS = {name.encode(): name for name in ("content-length", "content-type", "retry-after", "transfer-encoding")}
MAX_HEAD = 1 << 18
JOINED = 1 << 16
"""Up to this many bytes, the head and the body are copied into one piece, for one send."""


class Connections:
    """The connections to an address. Threads may share them, and each uses one at a time."""

    def __init__(self, address: Address) -> None:
        """Connect to nothing yet."""
        self._address = address
        self._idle: deque[Connection] = deque()
        self._process = os.getpid()
        self._is_closed = False

    def exchange(self, call: Call[Any], limit: Limit) -> Response:
        """Send a call and return the response; raise a ``PullbackError`` if there is none."""
        connection = self._idle_connection() or self._connect(limit)
        try:
            response = connection.exchange(self._head(call, limit), call, limit)
        except BaseException:
            connection.close()
            raise
        if connection.is_reusable and not self._is_closed:
            self._idle.append(connection)
        else:
            connection.close()
        return response

    def close(self) -> None:
        """Close the idle connections; those in use close after their response."""
        self._is_closed = True
        while self._idle:
            with contextlib.suppress(IndexError):
                self._idle.pop().close()

    def __del__(self) -> None:
        # Nobody closes the client of an op that was copied, as into another process.
        self.close()

    def _idle_connection(self) -> "Connection | None":
        if self._process != os.getpid():
            # The parent of this process, which was forked, still uses them.
            self._idle, self._process = deque(), os.getpid()
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            if connection.is_usable:
                return connection
            connection.close()

    def _connect(self, limit: Limit) -> "Connection":
        timeout = limit.wait(self._address.timeout)
        seconds = CONNECT_S if timeout is None else min(timeout, CONNECT_S)
        try:
            return Connection(self._connected(seconds), self._address)
        except (OSError, UnicodeError) as error:
            raise self._address.cannot_connect(error) from error

    def _connected(self, seconds: float) -> socket.socket:
        location, path = self._address.location, self._address.socket_path
        if path is not None:
            opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            opened.settimeout(seconds)
            try:
                opened.connect(path)
            except OSError:
                opened.close()
                raise
            return opened
        port = location.port or (443 if self._tls else 80)
        opened = socket.create_connection((location.host, port), seconds)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._tls.wrap_socket(opened, server_hostname=location.host) if self._tls else opened

    @cached_property
    def _tls(self) -> ssl.SSLContext | None:
        return httpx.create_ssl_context() if self._address.location.scheme == "https" else None

    @cached_property
    def _fixed(self) -> tuple[str, str]:
        """The path of the service, and the headers that all requests have."""
        location = self._address.location
        headers = {"Host": location.netloc.decode("ascii"), **self._address.headers}
        return location.raw_path.decode("ascii").rstrip("/"), _lines(headers)

    def _head(self, call: Call[Any], limit: Limit) -> bytes:
        path, lines = self._fixed
        deadline = "" if limit.seconds is None else _lines(limit.headers())
        own = _content_lines(call.content)
        return f"{call.method} {path}{call.path} HTTP/1.1\r\n{lines}{own}{deadline}\r\n".encode("ascii")


class Connection:
    """A connection, for one request at a time."""

    def __init__(self, opened: socket.socket, address: Address) -> None:
        """Take over a connected socket."""
        self._socket = opened
        self._address = address
        self._poll = select.poll()
        self._poll.register(opened, select.POLLIN)
        self._used = time.monotonic()
        self._timeout = opened.gettimeout()
        self.is_reusable = False

    @property
    def is_usable(self) -> bool:
        """Whether an idle connection can take a request: it is not old, and the server has not closed it."""
        return time.monotonic() - self._used < IDLE_S and not self._poll.poll(0)

    def exchange(self, head: bytes, call: Call[Any], limit: Limit) -> Response:
        """Send a request and return the response; raise a ``PullbackError`` if there is none."""
        try:
            # A server that refuses a request may close the connection before the end; its response says why.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self._send(head, call, limit)
            answer = self._receive(limit)
        except TimeoutError as error:
            raise self._address.timed_out(limit) from error
        except httptools.HttpParserError as error:
            raise self._address.not_pullback("invalid HTTP") from error
        except MemoryError as error:
            raise self._address.not_pullback("a response that does not fit into memory") from error
        except OSError as error:
            raise self._address.connection_lost() from error
        self.is_reusable = answer.keeps_alive
        self._used = time.monotonic()
        return Response(answer.status, answer.headers, answer.content)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _send(self, head: bytes, call: Call[Any], limit: Limit) -> None:
        self._wait(limit)
        if call.body is None or len(head) + call.body.size <= JOINED:
            pieces = () if call.body is None else call.body.pieces
            self._socket.sendall(b"".join((head, *pieces)))
            return
        self._socket.sendall(head)
        for chunk in call.body.chunks():
            self._wait(limit)
            self._socket.sendall(chunk)

    def _receive(self, limit: Limit) -> "Answer":
        answer = Answer()
        while not answer.is_complete:
            self._wait(limit)
            data = self._socket.recv(READ)
            if not data:
                answer.end()
                break
            answer.feed(data)
            if (rest := answer.rest()) is not None:
                self._fill(rest, limit)
                answer.is_complete = True
        return answer

    def _fill(self, rest: memoryview, limit: Limit) -> None:
        while rest:
            self._wait(limit)
            count = self._socket.recv_into(rest)
            if not count:
                raise ConnectionResetError
            rest = rest[count:]

    def _wait(self, limit: Limit) -> None:
        timeout = limit.wait(self._address.timeout)
        # To set the same again would cost a system call.
        if timeout != self._timeout:
            self._socket.settimeout(timeout)
            self._timeout = timeout


class Answer:
    """The response that httptools parses, which calls the methods that begin with ``on_``."""

    def __init__(self) -> None:
        """Start before the first byte."""
        self.headers: dict[str, str] = {}
        self.content: Buffer = b""
        self.is_complete = False
        self.status = 0
        self.keeps_alive = False
        self._is_final = False
        self._size = 0
        self._fields: dict[bytes, bytes] = {}
        self._chunks: list[bytes] = []
        self.on_header = self._fields.__setitem__
        self.on_body = self._chunks.append
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Parse the next bytes; raise ``HttpParserError``."""
        self._size += len(data)
        self._parser.feed_data(data)
        if not self._is_final and self._size > MAX_HEAD:
            raise httptools.HttpParserError(f"expected a head of at most {MAX_HEAD} bytes")

    def rest(self) -> memoryview | None:
        """Return the memory for the rest of a long body whose length is known: it needs no parser.

        The content is then this memory, which is not copied again.
        """
        length = self.headers.get("content-length", "")
        if self.is_complete or not self._is_final or "transfer-encoding" in self.headers or not length.isdecimal():
            return None
        if int(length) <= READ:
            return None
        content = np.empty(int(length), np.uint8).data
        begun = b"".join(self._chunks)
        content[: len(begun)] = begun
        self.content = content
        return content[len(begun) :]

    def end(self) -> None:
        """End the response, since the connection is closed; raise ``ConnectionResetError`` if it lacks bytes."""
        if not self._is_final or not {"content-length", "transfer-encoding"}.isdisjoint(self.headers):
            raise ConnectionResetError
        self.on_message_complete()

    def on_message_begin(self) -> None:
        """Refuse a second response to the request."""
        if self.is_complete:
            raise httptools.HttpParserError("expected one response")

    def on_headers_complete(self) -> None:
        """Store the head; forget the headers of an informational response, such as 103: another one follows."""
        self.status, self.keeps_alive = self._parser.get_status_code(), self._parser.should_keep_alive()
        self._is_final = self.status >= 200  # noqa: PLR2004 - the first final status
        if self._is_final:
            fields = {name.lower(): value for name, value in self._fields.items()}
            self.headers = {name: fields[key].decode("latin-1") for key, name in HEADERS.items() if key in fields}
        self._fields.clear()

    def on_message_complete(self) -> None:
        """Join the content of the final response."""
        if self._is_final:
            self.content = b"".join(self._chunks)
            self.is_complete = True


@lru_cache(maxsize=256)
def _content_lines(content: Content) -> str:
    return _lines(content.headers())


def _lines(headers: Mapping[str, str]) -> str:
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items())
