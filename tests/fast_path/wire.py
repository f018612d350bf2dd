"""A connection that sends any bytes and returns the answers unchanged, except for the date and the request id."""

import contextlib
import re
import socket
import time
from collections.abc import Iterable
from typing import NamedTuple, Self

from tests.patience import PATIENCE_S

LENGTH = re.compile(rb"\r\ncontent-length: ([0-9]+)\r\n")
CHANGING = re.compile(rb"(?m)^((?:date|x-request-id): )[^\r]+")
# The most bytes of one read.
PIECE = 1 << 16


class Answer(NamedTuple):
    """The head of an answer without the values of the date and the request id, and its body; empty at the end."""

    head: bytes
    body: bytes

    @property
    def status(self) -> int:
        return int(self.head.split(b" ", 2)[1]) if self.head else 0

    @property
    def is_last(self) -> bool:
        """Whether the connection ends with this answer."""
        return not self.head or b"\r\nconnection: close\r\n" in self.head


END = Answer(b"", b"")


class Wire:
    """A connection to a service on loopback."""

    def __init__(self, port: int, patience_s: float = PATIENCE_S) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=patience_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._data = b""
        self.ids: list[bytes] = []
        """The request ids of the answers."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.socket.close()

    def send(self, *pieces: bytes, pause_s: float = 0.0) -> None:
        """Send the pieces, with a pause between two of them, until the service closes the connection."""
        with contextlib.suppress(ConnectionError):
            for number, piece in enumerate(pieces):
                if number and pause_s:
                    time.sleep(pause_s)
                self.socket.sendall(piece)

    def answer(self) -> Answer:
        """Return the next answer; ``END`` if the connection ends before its last byte."""
        try:
            while b"\r\n\r\n" not in self._data:
                if not self._read():
                    return END
            head, _, rest = self._data.partition(b"\r\n\r\n")
            head += b"\r\n"
            length = LENGTH.search(head)
            assert length, head
            size = int(length[1])
            while len(rest) < size:
                if not self._read():
                    return END
                rest = self._data[len(head) + 2 :]
        except ConnectionError:
            return END
        self._data = rest[size:]
        self.ids += re.findall(rb"\r\nx-request-id: ([^\r]+)", head)
        return Answer(CHANGING.sub(rb"\1", head), rest[:size])

    def answers(self, count: int) -> list[Answer]:
        """Return that many answers, fewer if the connection ends."""
        found: list[Answer] = []
        while len(found) < count and (not found or not found[-1].is_last):
            found.append(self.answer())
        return found

    def rest(self) -> bytes:
        """Return all bytes until the end of the connection."""
        try:
            while self._read():
                pass
        except ConnectionError:
            pass
        return self._data

    def _read(self) -> bool:
        piece = self.socket.recv(PIECE)
        self._data += piece
        return bool(piece)


def post(path: str, body: bytes, *headers: str) -> bytes:
    """Return a request of a JSON client; ``headers`` are lines in place of its content type."""
    return with_head(path, headers or ("content-type: application/json",), body)


def with_head(path: str, headers: Iterable[str], body: bytes) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "host: localhost", *headers, f"content-length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body
