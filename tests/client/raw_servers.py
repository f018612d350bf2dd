"""Servers that send bytes as a test prescribes, well or badly."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterable

from tests.patience import PATIENCE_S

OK = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n{"ops": []}'


class RawServer:
    """A server that answers each request on a connection with these bytes, split as given, and counts connections.

    An empty piece closes the connection. ``pause_s`` is the time before each piece. With ``answers``, a connection has
    so many answers and is then closed at the next request, before it is answered.
    """

    def __init__(self, *pieces: bytes, pause_s: float = 0.0, answers: int | None = None) -> None:
        self.pieces, self.pause_s, self.answers = pieces, pause_s, answers
        self.heads: list[bytes] = []
        self.connections = self.closed = 0
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop_connections()
        for thread in self._threads:
            thread.join(PATIENCE_S)

    def drop_connections(self) -> None:
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def send_to_all(self, data: bytes) -> None:
        """Send bytes that answer no request."""
        for connection in self._open:
            connection.sendall(data)

    @property
    def open_connections(self) -> int:
        return sum(thread.is_alive() for thread in self._threads[1:])

    def wait_for_connections(self) -> None:
        """Wait until the server has closed all connections."""
        for thread in self._threads[1:]:
            thread.join(PATIENCE_S)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            self._threads.append(threading.Thread(target=self._serve, args=(connection,)))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(PATIENCE_S)
            answered = 0
            while head := self._request(connection):
                self.heads.append(head)
                if self.answers is not None and answered >= self.answers:
                    break
                answered += 1
                if not self._send(connection, self.pieces):
                    break
        self.closed += 1

    def _send(self, connection: socket.socket, pieces: Iterable[bytes]) -> bool:
        for piece in pieces:
            if not piece:
                return False
            if self.pause_s:
                time.sleep(self.pause_s)
            connection.sendall(piece)
        return True

    def _request(self, connection: socket.socket) -> bytes:
        data = b""
        while b"\r\n\r\n" not in data:
            more = connection.recv(65536)
            if not more:
                return b""
            data += more
        return data
