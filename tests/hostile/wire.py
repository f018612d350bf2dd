"""A connection on loopback that sends any bytes and parses answers; the standard library parses them."""

import http.client
import socket
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

HOST = "127.0.0.1"
# The longest answer that is read. No attack asks for more.
ANSWER_LIMIT = 64 << 20
LINGER_0 = struct.pack("ii", 1, 0)


class Lost(Exception):
    """No answer, or not the whole one: the connection ended, was reset, or timed out."""


@dataclass(frozen=True)
class Answer:
    """One answer, and whether the service closes the connection after it."""

    status: int
    content_type: str
    body: bytes
    is_last: bool = False
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def same(self) -> tuple[int, str, bytes]:
        """What must not differ between two answers to one request."""
        return self.status, self.content_type, self.body


class Wire:
    """A connection; as a context manager it is closed at the end."""

    def __init__(self, port: int, timeout_s: float, receive_buffer: int = 0) -> None:
        """Connect; raise ``OSError`` if nothing listens. A receive buffer of 0 bytes means the system's default."""
        self.socket = socket.socket()
        self.socket.settimeout(timeout_s)
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            self.socket.connect((HOST, port))
        except OSError:
            self.socket.close()
            raise
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = _Stream(self.socket.makefile("rb"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def send(self, pieces: Iterable[bytes], pause_s: float = 0.0) -> None:
        """Send the pieces, with a pause after each; raise ``OSError`` if the service has closed the connection."""
        for piece in pieces:
            self.socket.sendall(piece)
            if pause_s:
                time.sleep(pause_s)

    def answer(self, method: str = "POST", timeout_s: float | None = None) -> Answer:
        """Return the next answer, after any 1xx; raise ``Lost``."""
        if timeout_s is not None:
            self.socket.settimeout(timeout_s)
        try:
            response = http.client.HTTPResponse(self._stream, method=method)  # pyright: ignore[reportArgumentType] - a stream that is not closed between answers
            response.begin()
            body = response.read(ANSWER_LIMIT)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Lost(f"{type(error).__name__}: {str(error)[:200]}") from None
        if response.length:
            raise Lost(f"{response.length} bytes of the answer are missing")
        headers, kind = tuple(response.getheaders()), response.getheader("content-type", "")
        return Answer(response.status, kind, body, response.will_close, headers)

    def reset(self) -> None:
        """Close the connection with a reset, as a client does that is killed."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_0)
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._stream.end()
        self.socket.close()


class _Stream:
    """A file of a socket that an ``HTTPResponse`` cannot close, so that the next answer can be read from it."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def makefile(self, mode: str) -> "_Stream":
        del mode
        return self

    def close(self) -> None:
        pass

    def end(self) -> None:
        self._file.close()


def is_listening(port: int) -> bool:
    """Return whether a connection can be made."""
    try:
        Wire(port, 5.0).close()
    except OSError:
        return False
    return True
