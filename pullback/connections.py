"""Connections of the blocking client: a small request is one send and one receive."""

import contextlib
import os
import select
import socket
import ssl
import time
from collections import deque
from functools import cached_property
from typing import Any

import httptools

from pullback.addresses import Address
from pullback.bodies import Body
from pullback.calls import Call
from pullback.failures import cannot_connect, failure, handshake_failed
from pullback.http1 import IDLE_S, READ, Answer, NoResponse, Requests, is_small, joined
from pullback.limits import Limit
from pullback.lookup import look_up, shares, until
from pullback.responses import Response


class Connections:
    """The connections to an address. Threads may share them, and each uses one at a time."""

    def __init__(self, address: Address) -> None:
        """Connect to nothing yet."""
        self._address, self._requests = address, Requests(address)
        self._idle: deque[Connection] = deque()
        self._process = os.getpid()
        self._is_closed = False

    def exchange(self, call: Call[Any], limit: Limit) -> Response:
        """Send a call and return the response; raise a ``PullbackError`` if there is none."""
        try:
            if (kept := self._idle_connection()) is not None:
                try:
                    return self._exchange(kept, call, limit)
                except NoResponse:
                    if not call.may_repeat:
                        raise
            return self._exchange(self._connect(limit), call, limit)
        except (OSError, MemoryError, httptools.HttpParserError) as error:
            raise failure(self._address, error, limit) from error

    def close(self) -> None:
        """Close the idle connections; those in use close after their response."""
        self._is_closed = True
        while self._idle:
            with contextlib.suppress(IndexError):
                self._idle.pop().close()

    def __del__(self) -> None:
        # Nobody closes the client of an op that was copied, as into another process.
        self.close()

    def _exchange(self, connection: "Connection", call: Call[Any], limit: Limit) -> Response:
        try:
            response = connection.exchange(self._requests.head(call, limit), call, limit)
        except BaseException:
            connection.close()
            raise
        if connection.is_reusable and not self._is_closed:
            self._idle.append(connection)
        else:
            connection.close()
        return response

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
        end = time.monotonic() + self._address.connect_seconds(limit)
        try:
            return Connection(self._connected(end), self._address.timeout)
        except (OSError, UnicodeError) as error:
            raise cannot_connect(self._address, error, limit) from error

    def _connected(self, end: float) -> socket.socket:
        address = self._address
        if address.socket_path is not None:
            return _open(socket.AF_UNIX, address.socket_path, until(end))
        # Settings that cannot be read are the first error.
        tls = self._tls
        opened = open_tcp(address.location.host, address.port, end)
        if tls is None:
            return opened
        opened.settimeout(until(end))
        with handshake_failed():
            return tls.wrap_socket(opened, server_hostname=address.location.host)

    @cached_property
    def _tls(self) -> ssl.SSLContext | None:
        return self._address.tls_context()


def open_tcp(host: str, port: int, end: float) -> socket.socket:
    """Return a socket that is connected to one of a host's addresses, tried in order until ``end``."""
    failed: OSError = OSError("no address")
    for place, seconds in shares(look_up(host, port).result(until(end)), end):
        try:
            opened = _open(place.family, place.address, seconds)
        except OSError as error:
            failed = error
        else:
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return opened
    raise failed


def _open(family: int, address: Any, seconds: float) -> socket.socket:
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.settimeout(seconds)
        opened.connect(address)
    except BaseException:
        opened.close()
        raise
    return opened


class Connection:
    """A connection, for one request at a time."""

    def __init__(self, opened: socket.socket, timeout: float | None) -> None:
        """Take over a connected socket; ``timeout`` limits each wait."""
        self._socket, self._limit_of_waits = opened, timeout
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
        """Send a request and return the response; raise ``NoResponse`` or another ``OSError`` if there is none."""
        answer = Answer()
        try:
            is_sent = self._send(head, call, answer, limit)
            while not answer.is_complete:
                self._receive(answer, limit)
        except TimeoutError:
            raise
        except OSError as error:
            raise answer.lost() from error
        self.is_reusable = answer.keeps_alive and is_sent
        self._used = time.monotonic()
        return answer.response

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _send(self, head: bytes, call: Call[Any], answer: Answer, limit: Limit) -> bool:
        """Send a request, and report whether all of it was sent.

        A server that refuses a request may close the connection before the end; its response says why.
        """
        try:
            self._wait(limit)
            if call.body is None or is_small(head, call.body):
                self._socket.sendall(joined(head, call.body))
                return True
            self._socket.sendall(head)
            return self._send_large(call.body, answer, limit)
        except TimeoutError:
            raise
        except OSError:
            return False

    def _send_large(self, body: Body, answer: Answer, limit: Limit) -> bool:
        """Send a body in pieces, until the server answers."""
        for chunk in body.chunks():
            rest = memoryview(chunk)
            while rest:
                if self._has_response(limit):
                    self._receive(answer, limit)
                    if answer.is_complete:
                        return False
                    continue
                rest = rest[self._socket.send(rest) :]
        return True

    def _has_response(self, limit: Limit) -> bool:
        """Wait until the server takes or sends bytes; report whether it has sent some."""
        self._wait(limit)
        if isinstance(self._socket, ssl.SSLSocket):
            # Bytes may be those of TLS itself.
            return False
        self._poll.modify(self._socket, select.POLLIN | select.POLLOUT)
        events = self._poll.poll(None if self._timeout is None else 1000 * self._timeout)
        self._poll.modify(self._socket, select.POLLIN)
        if not events:
            raise TimeoutError
        return bool(events[0][1] & select.POLLIN)

    def _receive(self, answer: Answer, limit: Limit) -> None:
        self._wait(limit)
        data = self._socket.recv(READ)
        if not data:
            answer.end()
            return
        answer.feed(data)
        if (rest := answer.rest()) is not None:
            self._fill(rest, limit)
            answer.is_complete = True

    def _fill(self, rest: memoryview, limit: Limit) -> None:
        while rest:
            self._wait(limit)
            count = self._socket.recv_into(rest)
            if not count:
                raise ConnectionResetError
            rest = rest[count:]

    def _wait(self, limit: Limit) -> None:
        timeout = limit.wait(self._limit_of_waits)
        # To set the same again would cost a system call.
        if timeout != self._timeout:
            self._socket.settimeout(timeout)
            self._timeout = timeout
