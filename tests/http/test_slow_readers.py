"""A client must read an answer at a least rate; how long the whole takes has no limit."""

import json
import socket
import time

import pytest

from app.http import deadlines, transport
from tests.conftest import Serve
from tests.patience import PATIENCE_S, PAUSE_S
from tests.threaded_service import ThreadedService

# The rate is measured every so often, and so small an answer, of 16 MB, takes several periods.
PERIOD_S, RATE = 0.5, 1 << 20
COUNT, PIECE = 2000, 1 << 16


@pytest.fixture
def one(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> ThreadedService:
    monkeypatch.setattr(deadlines, "SEND_S", PERIOD_S)
    monkeypatch.setattr(transport, "REST_S", PERIOD_S)
    monkeypatch.setattr(deadlines, "READ_RATE", RATE)
    return serve(PROTOCOLS="")


def connected(one: ThreadedService) -> socket.socket:
    """Return a connection that has asked for an answer of megabytes."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, PIECE)
    sock.settimeout(PATIENCE_S)
    sock.connect(("127.0.0.1", one.port))
    body = json.dumps({"inputs": {"x": [0.1 + n / 7 for n in range(COUNT)]}}).encode()
    head = "POST /v1/ops/log1pexp/jacobian HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    sock.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    return sock


def in_flight(one: ThreadedService) -> float:
    with one.client() as client:
        text = client.get("/metrics").text
    return float(text.partition("\npullback_in_flight_requests ")[2].split("\n", 1)[0])


@pytest.mark.slow
def test_a_steady_reader_gets_the_whole_answer(one: ThreadedService) -> None:
    with connected(one) as sock:
        began, found = time.monotonic(), b""
        while b"\r\n\r\n" not in found or len(found) < size_of(found):
            piece = sock.recv(PIECE)
            assert piece, f"disconnected after {len(found)} bytes"
            found += piece
            time.sleep(0.01)
        assert len(found) == size_of(found)
        assert time.monotonic() - began > 2 * PERIOD_S


def size_of(data: bytes) -> int:
    head, _, _ = data.partition(b"\r\n\r\n")
    return len(head) + 4 + int(head.lower().partition(b"content-length: ")[2].split(b"\r\n", 1)[0])


@pytest.mark.parametrize("reads", [0, 100])
def test_a_client_that_hardly_reads_is_disconnected(one: ThreadedService, reads: int) -> None:
    """Neither its request nor its connection remains."""
    with connected(one) as sock:
        until = time.monotonic() + PATIENCE_S
        while in_flight(one) == 0:
            assert time.monotonic() < until
        while in_flight(one) > 0:
            assert time.monotonic() < until
            if reads:
                sock.recv(reads)
            time.sleep(PAUSE_S)
        try:
            while sock.recv(PIECE):
                pass
        except ConnectionError:
            pass  # as often as not, it ends so
