"""The attack is a checker too: it finds planted mistakes of a server, and its valid requests are valid."""

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import h11
import pytest

from tests.hostile import evil, findings
from tests.hostile.attack import Attack
from tests.hostile.findings import FAULT, GROWTH, LOST, STATUS, TRACEBACK, WRONG, Findings
from tests.hostile.framing import harmless
from tests.hostile.phases import evil_ops, memory
from tests.hostile.phases.fuzz import fuzzed
from tests.hostile.requests import SAFETENSORS, Request, post
from tests.hostile.strike import strike
from tests.hostile.target import find_growth, tracebacks
from tests.hostile.wire import Answer
from tests.hostile.witness import Good

RIGHT = Answer(200, "application/json", b'{"y":[1.0]}')
VJP = post("/v1/ops/square/vjp", {"inputs": {"x": [1.0, 2.0]}, "attrs": {}})
BINARY = Request("POST", "/v1/ops/square/vjp", (("content-type", SAFETENSORS),), memory.long_name("", 24).body)
GOODS = [Good(request, RIGHT) for request in (VJP, BINARY, Request("GET", "/v1/ops/square"))]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(findings, "FOLDER", tmp_path)


@contextmanager
def server(answer: bytes) -> Iterator[int]:
    """Serve one connection: read a little, send the answer, and close."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 20)
                connection.sendall(answer)
                connection.shutdown(socket.SHUT_WR)
                connection.recv(1 << 20)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


def response(status: int, body: bytes, content_type: str = "application/json") -> bytes:
    head = f"HTTP/1.1 {status} x\r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def found(answer: bytes, attack: Attack) -> dict[str, int]:
    counts = Findings("test")
    with server(answer) as port:
        strike(port, attack, counts, "case")
    return dict(counts.failures)


GOOD = Attack("good", (VJP.encode(),), expected=(GOODS[0],))
BAD = Attack("bad", (VJP.encode(),), is_whole=True)


@pytest.mark.parametrize(
    ("answer", "attack", "kinds"),
    [
        (response(200, RIGHT.body), GOOD, {}),
        (response(503, b"{}"), GOOD, {}),
        (response(200, b'{"y":[1.0000001]}'), GOOD, {WRONG: 1}),
        (response(200, RIGHT.body, "text/plain"), GOOD, {WRONG: 1}),
        (response(400, b"{}"), GOOD, {STATUS: 1}),
        (response(500, b'{"error":"internal error in the service"}'), GOOD, {FAULT: 1}),
        (b"", GOOD, {LOST: 1}),
        (response(200, RIGHT.body)[:-1], GOOD, {LOST: 1}),
        (response(422, b"{}"), BAD, {}),
        (response(500, b'{"error":"op x failed"}'), BAD, {}),
        (response(500, b'{"detail":"Internal error in the service"}'), BAD, {FAULT: 1}),
        (response(500, b"Internal Server Error", "text/plain"), BAD, {FAULT: 1}),
        (response(422, b'{"detail":"Traceback (most recent call last)"}'), BAD, {TRACEBACK: 1}),
        (response(418, b"{}"), BAD, {STATUS: 1}),
        (b"", BAD, {LOST: 1}),
        (b"", Attack("broken", (b"G",)), {}),
        (response(500, b"oops", "text/plain"), Attack("broken", (b"G",)), {FAULT: 1}),
    ],
)
def test_a_planted_mistake_is_found(answer: bytes, attack: Attack, kinds: dict[str, int]):
    assert found(answer, attack) == kinds


def test_growth_past_the_bounds_is_found():
    counts = Findings("test", rss_mb=(500.0, 900.0), files=(10, 100))
    find_growth(counts, processes=1, traces=1)
    assert counts.failures[GROWTH] == 2
    counts = Findings("test", rss_mb=(500.0, 900.0), files=(10, 11))
    find_growth(counts, processes=1, traces=200)
    assert not counts.failures


def test_tracebacks_in_the_log_are_found_but_not_those_of_ops():
    time, trace = (
        "2026-01-02T03:04:05.678Z",
        'Traceback (most recent call last):\n  File "a.py", line 1\n\nKeyError: 1\n',
    )
    mine, theirs = f"{time} ERROR request 1 failed\n{trace}", f"{time} WARNING op x failed\n{trace}\nand\n{trace}"
    assert tracebacks(f"{time} INFO a\n{mine}{time} INFO b\n{theirs}{time} INFO c\n") == [mine]
    assert tracebacks(trace) == [trace]


def test_a_finding_is_written_with_its_bytes(tmp_path):
    found(response(418, b"{}"), BAD)
    [written] = tmp_path.glob("*.bytes")
    assert written.read_bytes() == VJP.encode()


@pytest.mark.thorough
def test_a_case_is_reproducible():
    for number in range(40):
        assert fuzzed(f"7 {number}", GOODS) == fuzzed(f"7 {number}", GOODS)
        assert memory.long_name("7", number) == memory.long_name("7", number)
    assert len({fuzzed(f"7 {number}", GOODS).pieces for number in range(40)}) > 30


def test_harmless_framing_is_valid():
    """Another library reads the same requests."""
    for seed in range(300):
        attack = harmless(random.Random(seed), GOODS)
        data = b"".join(attack.pieces)
        for good, (target, body) in zip(attack.expected, requests_in(data), strict=True):
            assert (target, body) == (good.request.path.encode(), good.request.body)


def requests_in(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the target and the body of each request."""
    while data := data.lstrip(b"\r\n"):
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
        connection.receive_data(data)
        head, body = connection.next_event(), b""
        assert isinstance(head, h11.Request)
        while isinstance(event := connection.next_event(), h11.Data):
            body += event.data
        assert isinstance(event, h11.EndOfMessage)
        yield head.target, body
        data = connection.trailing_data[0]


def test_the_evil_ops_are_those_that_are_called():
    assert set(evil.OPS) == {*evil_ops.SURVIVABLE, *evil_ops.DEADLY}
