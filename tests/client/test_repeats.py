"""Calls whose kept connection is closed before the response, and large bodies that are refused while they are sent."""

import socket
import threading

import numpy as np
import pytest

import pullback
from pullback import calls
from tests.client.counting import sent_by
from tests.client.fake_servers import problem_response
from tests.client.raw_servers import OK
from tests.patience import PATIENCE_S

FORWARD = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n{"outputs": {}}'
TOO_LARGE = problem_response(413, "Body too large")
REFUSAL = b"HTTP/1.1 413 Too Large\r\nContent-Type: application/problem+json\r\nContent-Length: %d\r\n%s\r\n%s"


def test_a_call_is_sent_once_more_if_its_kept_connection_was_closed(client_of, raw_server) -> None:
    # The server reads the request and closes: the client cannot have seen that before it sent the request.
    server = raw_server(FORWARD, answers=1)
    with client_of(server.url) as client:
        for _ in range(3):
            assert client.op("square").forward({"x": 1}).outputs == {}
    assert server.connections == 3
    assert len(server.heads) == 5


def test_a_call_on_a_new_connection_is_never_sent_again(client_of, raw_server) -> None:
    server = raw_server(OK, answers=0)
    with client_of(server.url) as client, pytest.raises(pullback.ConnectionLost):
        client.ops()
    assert (server.connections, len(server.heads)) == (1, 1)


def test_a_call_is_sent_at_most_twice(client_of, raw_server) -> None:
    server = raw_server(OK, answers=1)
    with client_of(server.url) as client:
        assert client.ops() == []
        server.answers = 0
        with pytest.raises(pullback.ConnectionLost):
            client.ops()
    assert (server.connections, len(server.heads)) == (2, 3)


def test_a_call_whose_response_has_begun_is_never_sent_again(client_of, raw_server) -> None:
    server = raw_server(OK)
    with client_of(server.url) as client:
        assert client.ops() == []
        server.pieces = (OK[:1], b"")
        with pytest.raises(pullback.ConnectionLost):
            client.ops()
    assert (server.connections, len(server.heads)) == (1, 2)


def test_a_call_that_times_out_is_never_sent_again(client_of, raw_server) -> None:
    server = raw_server(OK)
    with client_of(server.url, timeout=0.2) as client:
        assert client.ops() == []
        server.pieces = ()
        with pytest.raises(pullback.TimedOut):
            client.ops()
    assert (server.connections, len(server.heads)) == (1, 2)


@pytest.mark.parametrize("client_of", ["blocking"], indirect=True)
def test_a_call_that_may_not_repeat_is_never_sent_again(client_of, raw_server) -> None:
    server = raw_server(OK, answers=1)
    with client_of(server.url) as client:
        assert client.ops() == []
        with pytest.raises(pullback.ConnectionLost):
            client.send(calls.ops()._replace(may_repeat=False))
    assert (server.connections, len(server.heads)) == (1, 2)


def test_a_stream_of_checks_may_not_repeat() -> None:
    assert not calls.checks(None, {}).may_repeat
    assert sent_by(lambda op: op.forward({"x": 1})).may_repeat


def test_a_large_call_is_sent_once_more(client_of) -> None:
    with Draining() as server, client_of(server.url, timeout=PATIENCE_S) as client:
        for _ in range(2):
            assert client.op("square").forward({"x": np.ones(1 << 20)}).outputs == {}
    assert server.connections == 2


class Draining:
    """A server that reads a request, answers it, and closes a connection in the middle of its second request."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> "Draining":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(PATIENCE_S)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            with connection, connection.makefile("rb") as request:
                length = 0
                while (line := request.readline()) not in (b"\r\n", b""):
                    name, _, value = line.partition(b":")
                    length = int(value) if name.lower() == b"content-length" else length
                request.read(length)
                connection.sendall(FORWARD)
                if self.connections == 1:
                    request.read(100_000)


@pytest.mark.parametrize("ends", [b"", b"Connection: close\r\n"])
@pytest.mark.parametrize("reads", [0, 200_000])
def test_a_refusal_of_a_large_body_is_heard_while_it_is_sent(client_of, ends: bytes, reads: int) -> None:
    """The server answers and reads no more, with or without closing the connection."""
    answer = REFUSAL % (len(TOO_LARGE.body), ends, TOO_LARGE.body)
    with (
        Refusing(answer, reads, closes=bool(ends)) as server,
        client_of(server.url, timeout=PATIENCE_S) as client,
    ):
        for _ in range(3):
            with pytest.raises(pullback.TooLarge, match="the reason"):
                client.op("square").forward({"x": np.ones(1 << 22)})
    assert server.connections == 3


class Refusing:
    """A server that answers before the body has come, and keeps or closes the connection without reading the rest."""

    def __init__(self, answer: bytes, reads: int, *, closes: bool) -> None:
        self._answer, self._reads, self._closes = answer, reads, closes
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> "Refusing":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(PATIENCE_S)
        for connection in self._open:
            connection.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            left = self._reads + 1
            while left > 0:
                left -= len(connection.recv(min(left, 65536)))
            connection.sendall(self._answer)
            if self._closes:
                connection.close()
            else:
                self._open.append(connection)
