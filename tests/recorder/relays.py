"""A relay on a thread of the test, and a server that answers the bytes that a test prescribes."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from pullback.addresses import Url
from pullback.recorder.messages import Exchange
from pullback.recorder.relay import Traffic
from tests.patience import PATIENCE_S


@dataclass
class Seen:
    """What the relay has read of the exchanges: method, target, body, status, and body of the response."""

    exchanges: list[tuple[str, str, bytes, int, bytes]] = field(default_factory=list)

    def add(self, exchange: Exchange) -> None:
        request = exchange.request.read() if exchange.request.is_whole else b"?"
        response = exchange.response.read() if exchange.response.is_whole else b"?"
        self.exchanges.append((exchange.method, exchange.target, request, exchange.status, response))


@dataclass
class Relay:
    port: int
    traffic: Traffic
    seen: list[tuple[str, str, bytes, int, bytes]]

    def connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection


@contextlib.contextmanager
def relayed(url: str, most: int = 100, tls: ssl.SSLContext | None = None) -> Generator[Relay]:
    """Relay to a URL."""
    seen = Seen()
    traffic = Traffic(Url.parse(url), url, tls, lambda method, target: True, seen.add, most)
    traffic.listen(0)
    try:
        yield Relay(traffic.port, traffic, seen.exchanges)
    finally:
        traffic.close()


@dataclass
class Peer:
    """A server whose connections a function serves; ``received`` has their bytes."""

    url: str
    received: bytearray


@contextlib.contextmanager
def peer(serve: Callable[[socket.socket, bytearray], None], tls: ssl.SSLContext | None = None) -> Generator[Peer]:
    """Serve each connection with a function, on a thread of its own."""
    listener = socket.create_server(("127.0.0.1", 0))
    received, threads, opened = bytearray(), list[threading.Thread](), list[socket.socket]()

    def run(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            used = connection if tls is None else tls.wrap_socket(connection, server_side=True)
            with used:
                serve(used, received)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                opened.append(connection)
                threads.append(threading.Thread(target=run, args=(connection,)))
                threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        scheme = "http" if tls is None else "https"
        yield Peer(f"{scheme}://127.0.0.1:{listener.getsockname()[1]}", received)
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for connection in opened:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        accepting.join(PATIENCE_S)
        for thread in threads:
            thread.join(PATIENCE_S)


def answering(request: bytes, response: bytes) -> Callable[[socket.socket, bytearray], None]:
    """Answer, once so many bytes as the request's have come, and then close the connection."""

    def serve(connection: socket.socket, received: bytearray) -> None:
        while len(received) < len(request) and (data := connection.recv(1 << 16)):
            received += data
        connection.sendall(response)

    return serve


def read_all(connection: socket.socket) -> bytes:
    """Return all bytes until the end."""
    found = bytearray()
    while data := connection.recv(1 << 16):
        found += data
    return bytes(found)
