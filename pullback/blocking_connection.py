"""A connection of the blocking client: a small request is one send and one receive."""

import select
import socket
import ssl
import time
from typing import Any

from pullback.bodies import Body
from pullback.calls import Call
from pullback.http1 import IDLE_S, READ, ResponseParser, is_small, joined
from pullback.limits import Limit
from pullback.responses import Response


class BlockingConnection:
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

    async def exchange(self, head: bytes, call: Call[Any], limit: Limit) -> Response:
        """Send a request and return the response; raise ``NoResponse`` or another ``OSError`` if there is none."""
        parser = ResponseParser()
        try:
            is_sent = self._send(head, call, parser, limit)
            while not parser.is_complete:
                self._receive(parser, limit)
        except TimeoutError:
            raise
        except OSError as error:
            raise parser.lost() from error
        self.is_reusable = parser.keeps_alive and is_sent
        self._used = time.monotonic()
        return parser.finish()

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
                if self._has_response(limit):
                    self._receive(parser, limit)
                    if parser.is_complete:
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

    def _receive(self, parser: ResponseParser, limit: Limit) -> None:
        self._wait(limit)
        data = self._socket.recv(READ)
        if not data:
            parser.end()
            return
        parser.feed(data)
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
        timeout = limit.wait(self._limit_of_waits)
        # To set the same again would cost a system call.
        if timeout != self._timeout:
            self._socket.settimeout(timeout)
            self._timeout = timeout
