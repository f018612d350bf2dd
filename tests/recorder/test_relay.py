"""The relay passes every byte on as it is, in both directions, and says so when the server has gone."""

import contextlib
import http.client
import socket
import ssl
import struct
import threading
import time

import pytest

from pullback.recorder.messages import MAX_BODY, MAX_HEAD, Exchange
from tests.http.test_tls import make_certificate
from tests.patience import PATIENCE_S
from tests.recorder.relays import Relay, answering, peer, read_all, relayed

HTTP_2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x12\x04\x00\x00\x00\x00\x00"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
POST = b"POST /Evaluate?a=1 HTTP/1.1\r\nHost: model\r\nX-Odd:   kept \r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"PUT /x HTTP/1.1\r\nhost: model\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3;ext=1\r\nhel\r\n2\r\nlo\r\n0\r\nTrailer: t\r\n\r\n"
)
REQUESTS = {
    "length": (POST, [("POST", "/Evaluate?a=1", b"hello")]),
    "chunks": (CHUNKED, [("PUT", "/x", b"hello")]),
    "pipelined": (
        POST + POST + b"GET / HTTP/1.1\r\n\r\n",
        [("POST", "/Evaluate?a=1", b"hello")] * 2 + [("GET", "/", b"")],
    ),
    "no body": (b"OPTIONS * HTTP/1.1\r\nHost: model\r\n\r\n", [("OPTIONS", "*", b"")]),
    "1.0": (b"GET /Info HTTP/1.0\r\n\r\n", [("GET", "/Info", b"")]),
    "head": (b"HEAD /Info HTTP/1.1\r\n\r\n", []),
    "upgrade": (b"GET / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x00", []),
    "not http": (b"\x16\x03\x01\x02\x00\x01\x00\x01", []),
    "two lengths": (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", []),
    "long head": (b"GET / HTTP/1.1\r\nX: " + b"y" * 2 * MAX_HEAD, []),
    "chunks, pipelined": (CHUNKED + POST, []),
}
RESPONSES = {
    "length": OK,
    "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\n{}\r\n0\r\nT: u\r\n\r\n",
    "until the end": b"HTTP/1.0 200 Fine\r\nX: y\r\n\r\n{}",
    "interim": b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + OK,
    "error": b"HTTP/1.1 500 Oh\r\ncontent-length: 3\r\n\r\nno!",
    "nonsense": b"HTTP/9.7 banana\r\n\r\n\x00\xff",
    "cut off": b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhal",
}


@pytest.mark.parametrize(("request_bytes", "exchanges"), REQUESTS.values(), ids=REQUESTS)
def test_requests_pass_byte_for_byte(request_bytes: bytes, exchanges: list[tuple[str, str, bytes]]) -> None:
    response = OK * max(1, len(exchanges))
    with peer(answering(request_bytes, response)) as server, relayed(server.url) as relay:
        with relay.connect() as connection:
            connection.sendall(request_bytes)
            assert read_all(connection) == response
        settle(relay)
        assert bytes(server.received) == request_bytes
        assert [each[:3] for each in relay.seen] == exchanges
        assert all(each[3:] == (200, b"{}") for each in relay.seen)


@pytest.mark.parametrize("response", RESPONSES.values(), ids=RESPONSES)
def test_responses_pass_byte_for_byte(response: bytes) -> None:
    with peer(answering(POST, response)) as server, relayed(server.url) as relay:
        with relay.connect() as connection:
            connection.sendall(POST)
            assert read_all(connection) == response
        settle(relay)


@pytest.mark.parametrize("request_bytes", [POST, CHUNKED], ids=["length", "chunks"])
def test_a_client_may_send_a_byte_at_a_time(request_bytes: bytes) -> None:
    with peer(answering(request_bytes, OK)) as server, relayed(server.url) as relay:
        with relay.connect() as connection:
            for i in range(len(request_bytes)):
                connection.sendall(request_bytes[i : i + 1])
            assert read_all(connection) == OK
        settle(relay)
        assert bytes(server.received) == request_bytes
        assert relay.seen[0][2] == b"hello"


def test_only_the_name_of_the_relay_becomes_that_of_the_server() -> None:
    def serve(connection: socket.socket, received: bytearray) -> None:
        received += read_all(connection)
        connection.sendall(OK)

    for host in ("127.0.0.1", "localhost"):
        with peer(serve) as server, relayed(server.url) as relay:
            request = b"GET / HTTP/1.1\r\nhOsT:  %s:%d\r\nX: 127.0.0.1:%d\r\n\r\n" % (
                host.encode(),
                relay.port,
                relay.port,
            )
            with relay.connect() as connection:
                connection.sendall(request)
                connection.shutdown(socket.SHUT_WR)
                read_all(connection)
            name = f"{host}:{relay.port}".encode()
            assert bytes(server.received) == request.replace(name, server.url[7:].encode(), 1)


def test_connections_stay_open_for_more_requests() -> None:
    def serve(connection: socket.socket, received: bytearray) -> None:
        while data := connection.recv(1 << 16):
            received += data
            if data.endswith(b"hello"):
                connection.sendall(OK)

    with peer(serve) as server, relayed(server.url) as relay:
        with relay.connect() as connection:
            for _ in range(3):
                connection.sendall(POST)
                assert connection.recv(1 << 16) == OK
        settle(relay)
        assert bytes(server.received) == 3 * POST
        assert len(relay.seen) == 3


def test_long_bodies_stream_both_ways_and_are_not_kept() -> None:
    size, piece = 3 * MAX_BODY, bytes(range(256)) * 4096

    def serve(connection: socket.socket, received: bytearray) -> None:
        head = b""
        while b"\r\n\r\n" not in head:  # the head may arrive alone, and in pieces
            head += connection.recv(1 << 20)
        count = len(head.partition(b"\r\n\r\n")[2])
        while count < size:
            count += len(connection.recv(1 << 20))
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
        for _ in range(size // len(piece)):
            connection.sendall(piece)

    with peer(serve) as server, relayed(server.url) as relay:
        client = http.client.HTTPConnection("127.0.0.1", relay.port, timeout=PATIENCE_S)
        client.request("POST", "/Evaluate", iter([piece] * (size // len(piece))), {"content-length": str(size)})
        assert client.getresponse().read() == piece * (size // len(piece))
        client.close()
        settle(relay)
        assert relay.seen == [("POST", "/Evaluate", b"?", 200, b"?")]


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The settings of TLS of a server, and of its clients."""
    files = make_certificate(tmp_path_factory.mktemp("tls"), "-nodes")
    ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours.load_cert_chain(*files)
    return ours, ssl.create_default_context(cafile=files[0])


def test_a_server_with_tls(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    ours, theirs = contexts
    size, piece = 1 << 22, bytes(range(256)) * 256

    def serve(connection: socket.socket, received: bytearray) -> None:
        while not received.endswith(b"the end"):
            received += connection.recv(1 << 16)
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size + piece * (size // len(piece)))

    with peer(serve, ours) as server, relayed(server.url, tls=theirs) as relay:
        body = piece * (size // len(piece)) + b"the end"
        client = http.client.HTTPConnection("127.0.0.1", relay.port, timeout=PATIENCE_S)
        client.request("POST", "/Evaluate", body)
        assert client.getresponse().read() == piece * (size // len(piece))
        client.close()
        settle(relay)
        assert bytes(server.received).partition(b"\r\n\r\n")[2] == body
        assert relay.seen[0][3] == 200
    # A certificate that nobody vouches for.
    with peer(serve, ours) as server, relayed(server.url, tls=ssl.create_default_context()) as relay:
        client = http.client.HTTPConnection("127.0.0.1", relay.port, timeout=PATIENCE_S)
        client.request("POST", "/Evaluate", b"{}")
        assert client.getresponse().status == 502
        client.close()


def test_a_client_that_does_not_read_holds_the_server_back() -> None:
    sent, over = 0, threading.Event()

    def serve(connection: socket.socket, received: bytearray) -> None:
        nonlocal sent
        connection.recv(1 << 16)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        connection.settimeout(1.0)
        try:
            while sent < 1 << 28:
                sent += connection.send(bytes(1 << 16))
        except TimeoutError:
            over.set()

    with peer(serve) as server, relayed(server.url) as relay, relay.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert over.wait(PATIENCE_S), "the relay takes in more than the client reads"
        assert sent < 1 << 26


def test_a_server_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with relayed(url) as relay:
        client = http.client.HTTPConnection("127.0.0.1", relay.port, timeout=PATIENCE_S)
        # More than the buffers of both sockets take: the answer must reach a client that still sends.
        client.request("POST", "/Evaluate", bytes(1 << 20))
        response = client.getresponse()
        assert response.status == 502
        assert f"pullback record: cannot connect to {url} (" in response.read().decode()
        client.close()


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_server_that_goes_away_during_a_request(how: str) -> None:
    def serve(connection: socket.socket, received: bytearray) -> None:
        connection.recv(1 << 16)
        if how == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with peer(serve) as server, relayed(server.url) as relay:
        client = http.client.HTTPConnection("127.0.0.1", relay.port, timeout=PATIENCE_S)
        client.request("POST", "/Evaluate", b"{}")
        response = client.getresponse()
        assert response.status == 502
        assert "closed the connection before it answered" in response.read().decode()
        client.close()
        assert relay.traffic.lost == 1
        settle(relay)


def test_the_number_of_connections_is_bounded() -> None:
    with peer(answering(POST, OK)) as server, relayed(server.url, most=3) as relay:
        held = [relay.connect() for _ in range(3)]
        wait_for(lambda: len(relay.traffic.links) == 3)
        with relay.connect() as more:
            assert b"503 Service Unavailable" in (text := read_all(more))
            assert b"expected at most 3 connections at a time" in text
        for connection in held:
            connection.close()
        wait_for(lambda: not relay.traffic.links)
        with relay.connect() as again:
            again.sendall(POST)
            assert read_all(again) == OK


GARBAGE = [
    HTTP_2,
    b"PRI / HTTP/1.1\r\n\r\n",
    POST + HTTP_2,
    bytes(50),
    b"\xff\xfeGET",
    b"SSH-2.0-x\r\n",
    b"\r\n\r\nGET / HTTP/1.1\r\n\r\n",
    b"SOURCE / HTTP/1.1\r\n\r\n",
    b"POST / HTTP/1.1\r\nContent-Length: \r\n\r\n",
    b"POST / HTTP/1.1\r\nContent-Length: 1" + 30 * b"0" + b"\r\n\r\n",
    b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    b"GET / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
    b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
    b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffffffff\r\n",
    b"GET / HTTP/1.1\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: A\r\n\r\n",
    b"GET http://[::1 HTTP/1.1\r\n\r\n",
    b"GET /\xff HTTP/1.1\r\n\r\n",
]


def test_no_bytes_take_a_place_for_good() -> None:
    def serve(connection: socket.socket, received: bytearray) -> None:
        if connection.recv(1 << 16):
            connection.sendall(OK)

    with peer(serve) as server, relayed(server.url, most=8) as relay:
        for _ in range(300 // len(GARBAGE) + 1):
            for garbage in GARBAGE:
                with relay.connect() as connection:
                    connection.sendall(garbage)
                    connection.shutdown(socket.SHUT_WR)
                    assert b"503" not in read_all(connection)
        with relay.connect() as connection:
            connection.sendall(POST)
            assert connection.recv(1 << 16) == OK
        settle(relay)


@pytest.mark.parametrize("size", [1, 3, 1 << 10])
def test_http_2_is_answered_in_http_1(size: int) -> None:
    with peer(answering(b"", OK)) as server, relayed(server.url) as relay:
        with relay.connect() as connection:
            # What follows the first words may meet a connection that is closed.
            for i in range(0, len(HTTP_2) if size > 3 else 12, size):
                connection.sendall(HTTP_2[i : i + size])
            assert b"505" in (text := read_all(connection))
            assert b"expected HTTP/1.1, got HTTP/2" in text
        settle(relay)
        assert relay.traffic.unread == 1


def test_a_fault_of_the_relay_gives_the_place_back() -> None:
    with peer(answering(POST, OK)) as server, relayed(server.url, most=2) as relay:

        def seen(exchange: Exchange) -> None:
            raise KeyError(exchange.target)

        relay.traffic.seen = seen
        for _ in range(5):
            with relay.connect() as connection:
                connection.sendall(POST)
                with contextlib.suppress(ConnectionResetError):
                    read_all(connection)
            wait_for(lambda: not relay.traffic.links)
        settle(relay)


def test_many_connections_at_once() -> None:
    def serve(connection: socket.socket, received: bytearray) -> None:
        data = b""
        while not data.endswith(b"hello"):
            data += connection.recv(1 << 16)
        connection.sendall(OK)

    with peer(serve) as server, relayed(server.url) as relay:
        opened = [relay.connect() for _ in range(60)]
        for connection in opened:
            connection.sendall(POST)
        for connection in opened:
            assert read_all(connection) == OK
            connection.close()
        settle(relay)
        assert len(relay.seen) == 60


def settle(relay: Relay) -> None:
    """Wait until nothing is in flight, and see that all room was given back."""
    wait_for(lambda: not relay.traffic.links)
    assert relay.traffic.in_flight == 0
    assert relay.traffic.begin("GET", "/").request.room.left == 64 << 20


def wait_for(condition) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)
