"""Large bodies that bypass the parser, in the real service: fragmented, truncated, too long, or followed by others."""

import contextlib
import json
import socket
import struct
import time

import numpy as np
import pytest

from tests.http.native_client import BINARY
from tests.http.test_binary import decode, encode
from tests.http.test_chain import parse, read_all
from tests.http.test_limits import connected

COUNT = 300_000
X = np.random.default_rng(7).normal(size=COUNT).astype(np.float32)
BODY = encode({"inputs/x": X})
TEXT = json.dumps({"inputs": {"x": X.tolist()}, "encoding": "flat"}).encode()
PATH = "/v1/ops/square/forward"
LARGE = len(BODY)


def head(size: int = LARGE, *lines: str, kind: str = BINARY, path: str = PATH) -> bytes:
    fixed = (
        f"POST {path} HTTP/1.1",
        "host: [::1]",
        f"content-type: {kind}",
        f"accept: {kind}",
        f"content-length: {size}",
    )
    return "\r\n".join([*fixed, *lines, "", ""]).encode()


def answer(sock: socket.socket) -> tuple[int, bytes]:
    """Read exactly one response."""
    top = b""
    while not top.endswith(b"\r\n\r\n"):
        byte = sock.recv(1)
        assert byte, f"expected an answer, got the end after {top}"
        top += byte
    status, headers, _ = parse(top)
    left, body = int(headers["content-length"]), bytearray()
    while left > len(body):
        piece = sock.recv(left - len(body))
        assert piece, "expected the rest of an answer"
        body += piece
    return status, bytes(body)


def check(found: tuple[int, bytes], x: np.ndarray = X) -> None:
    status, body = found
    assert status == 200, body[:500]
    np.testing.assert_array_equal(decode(body)[0]["outputs/y"], x * x)


@pytest.mark.parametrize("first", [0, 1, 1000, 70_000, LARGE - (1 << 18) - 1, LARGE - (1 << 18), LARGE - 1])
def test_a_body_in_two_pieces(service, first: int):
    with connected(service) as sock:
        for _ in range(2):
            sock.sendall(head() + BODY[:first])
            time.sleep(0.05)
            sock.sendall(BODY[first:])
            check(answer(sock))


@pytest.mark.parametrize("size", [4099, 65_536, 99_991])
def test_a_body_in_odd_pieces(service, size: int):
    with connected(service) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(head())
        for start in range(0, LARGE, size):
            sock.sendall(BODY[start : start + size])
            time.sleep(0.001)
        check(answer(sock))


@pytest.mark.parametrize("gap", [0, 0.05])
def test_requests_directly_after_a_large_body(service, gap: float):
    """The next requests arrive with its last bytes; the second of them is large again."""
    small = encode({"inputs/x": X[:3]})
    with connected(service) as sock:
        sock.sendall(head() + BODY[:-10])
        time.sleep(gap)
        sock.sendall(BODY[-10:] + head(len(small)) + small + head() + BODY[:100_000])
        time.sleep(gap)
        sock.sendall(BODY[100_000:] + head(len(small), "connection: close") + small)
        for x in (X, X[:3], X, X[:3]):
            check(answer(sock), x)
        assert not sock.recv(1)


def test_json_in_two_pieces_and_the_next_request(service):
    with connected(service) as sock:
        for cut in (0, 5000, 200_000):
            sock.sendall(head(len(TEXT), kind="application/json") + TEXT[:cut])
            time.sleep(0.05)
            sock.sendall(TEXT[cut:])
            status, body = answer(sock)
            assert status == 200
            found = np.float32(json.loads(body)["outputs"]["y"]["data"])
            np.testing.assert_array_equal(found, X * X)


def test_extra_bytes_after_a_body_are_not_a_request(service):
    with connected(service) as sock:
        sock.sendall(head() + BODY[:1000])
        time.sleep(0.05)
        sock.sendall(BODY[1000:] + b"nonsense\r\n\r\n")
        data = read_all(sock)
    assert b"HTTP/1.1 400 " in data
    with connected(service) as sock:
        sock.sendall(head() + BODY)
        check(answer(sock))


def test_a_truncated_body_ends_only_its_request(service):
    for first in (0, 1000, 700_000):
        with connected(service) as sock:
            sock.sendall(head() + BODY[:first])
            time.sleep(0.05)
            sock.shutdown(socket.SHUT_WR)
            read_all(sock)
        with connected(service) as sock:  # a reset instead of a regular close
            sock.sendall(head() + BODY[:first])
            time.sleep(0.05)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with connected(service) as sock:
        sock.sendall(head() + BODY)
        check(answer(sock))


@pytest.mark.slow
def test_a_slow_body_is_408_with_the_bytes_received(service):
    for first in (0, 5, 700_000):
        with connected(service) as sock:
            sock.sendall(head(LARGE, "pullback-deadline-ms: 700") + BODY[:first])
            status, headers, body = parse(read_all(sock))
        assert (status, headers["connection"]) == (408, "close")
        assert f"{first} bytes" in json.loads(body)["detail"]


def test_expect_100_continue(service):
    with connected(service) as sock:
        for _ in range(2):
            sock.sendall(head(LARGE, "expect: 100-continue"))
            assert sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
            sock.sendall(BODY)
            check(answer(sock))


def test_invalid_tensors_keep_the_connection(service):
    wrong = BODY.replace(b"F32", b"F64", 1)
    with connected(service) as sock:
        for _ in range(3):
            sock.sendall(head() + wrong)
            assert answer(sock)[0] == 400
            sock.sendall(head() + BODY)
            check(answer(sock))


@pytest.mark.parametrize("path", ["/v1/ops/no_such/forward", "/v1/ops/square/no_such"])
def test_an_error_before_the_body_is_read(service, path: str):
    with connected(service) as sock:
        sock.sendall(head(path=path))
        with contextlib.suppress(ConnectionError):
            sock.sendall(BODY)
        assert parse(read_all(sock))[0] == 404


def test_an_unread_body_is_discarded(service):
    with connected(service) as sock:
        sock.sendall(head(path="/v1/none") + BODY)
        assert answer(sock)[0] == 404
        sock.sendall(head() + BODY)
        check(answer(sock))


def test_a_client_that_reads_nothing_is_dropped(service):
    with connected(service) as deaf, connected(service) as sock:
        deaf.sendall(head() + BODY)
        time.sleep(0.5)
        sock.sendall(head() + BODY)
        check(answer(sock))


@pytest.fixture(scope="module")
def small(start_for_module):
    return start_for_module(MAX_BODY_MB="2", MAX_INFLIGHT_MB="5").wait_until_ready()


def test_the_budget_is_reserved_before_the_body_and_released(small):
    with connected(small) as one, connected(small) as two, connected(small) as three:
        for sock in (one, two):
            sock.sendall(head(2 << 20))
        time.sleep(0.3)
        three.sendall(head() + BODY[:1000])
        assert parse(read_all(three))[0] == 503
    for _ in range(20):
        time.sleep(0.05)
        with connected(small) as sock:
            sock.sendall(head() + BODY)
            status, body = answer(sock)
        if status == 200:
            break
    check((status, body))
    with connected(small) as sock:
        sock.sendall(head((2 << 20) + 1))
        assert parse(read_all(sock))[0] == 413


def test_memory_does_not_grow(small):
    def resident() -> int:
        with open(f"/proc/{small.process.pid}/statm") as file:
            return int(file.read().split()[1]) * 4096

    def rounds(count: int) -> None:
        for _ in range(count):
            with connected(small) as sock:
                for _ in range(3):
                    sock.sendall(head() + BODY)
                    check(answer(sock))
                sock.sendall(head() + BODY[:700_000])
                time.sleep(0.01)

    rounds(15)
    before = resident()
    rounds(40)
    assert resident() - before < 30 * LARGE
