"""The limits of the real service: settings change them, and all routes enforce them; test_chain.py has each limit."""

import contextlib
import json
import socket

import pytest

from tests.http.test_chain import parse, read_all
from tests.patience import PATIENCE_S

MIB = 1 << 20
SQUARE = "/v1/ops/square/forward"
REQUEST = b'{"inputs":{"x":[1,2]}}'
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def small(serve_for_module):
    """A service with small limits."""
    return serve_for_module(MAX_JSON_MB="1", MAX_BODY_MB="2", MAX_INFLIGHT_MB="2")


@contextlib.contextmanager
def connected(one):
    with socket.create_connection(("127.0.0.1", one.port), timeout=PATIENCE_S) as sock:
        yield sock


def head(*lines: str, path: str = SQUARE) -> bytes:
    fixed = (f"POST {path} HTTP/1.1", "host: localhost", "content-type: application/json")
    return "\r\n".join([*fixed, *lines, "", ""]).encode()


def raw(one, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send bytes, read until the server closes, and return the response.

    The server waits for the rest of a body that it has refused, unless the client ends its side.
    """
    with connected(one) as sock:
        sock.sendall(request)
        first = sock.recv(1 << 16)
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_WR)
        return parse(first + read_all(sock))


def still_serves(one) -> bool:
    with one.client() as client:
        return client.post(SQUARE, content=REQUEST, headers=JSON).json()["outputs"]["y"]["data"] == [1, 4]


def check_problem(answer: tuple[int, dict[str, str], bytes], status: int) -> dict:
    actual, headers, body = answer
    assert actual == status, body
    assert headers["content-type"] == "application/problem+json"
    assert headers["connection"] == "close"
    assert int(headers["content-length"]) == len(body)
    return json.loads(body)


@pytest.mark.parametrize("path", [SQUARE, "/v1/ops/no_such/forward", "/no/such/path"])
def test_a_large_json_body_is_413_on_every_path(small, path):
    with small.client() as client:
        response = client.post(path, content=bytes(MIB + 1), headers=JSON)
    assert response.status_code == 413
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["instance"] == path


@pytest.mark.slow
def test_a_full_budget_is_503_until_requests_end(small):
    large = head("expect: 100-continue", "pullback-deadline-ms: 3000", f"content-length: {MIB}")
    with connected(small) as one, connected(small) as two, small.client() as client:
        for sock in (one, two):
            sock.sendall(large)
            assert sock.recv(100).startswith(b"HTTP/1.1 100 ")
        response = client.post(SQUARE, content=REQUEST, headers=JSON)
        assert (response.status_code, response.headers["retry-after"]) == (503, "1")
        for sock in (one, two):
            check_problem(parse(read_all(sock)), 408)
    assert still_serves(small)


def test_a_truncated_body_ends_only_its_request(small):
    with connected(small) as sock:
        sock.sendall(head(f"content-length: {len(REQUEST)}") + REQUEST[:5])
        sock.shutdown(socket.SHUT_WR)
        read_all(sock)
    assert still_serves(small)


def test_extra_bytes_after_a_body_are_not_a_request(small):
    with connected(small) as sock:
        sock.sendall(head("content-length: 2") + REQUEST)
        assert parse(read_all(sock))[0] == 400
    assert still_serves(small)


@pytest.mark.parametrize(("size", "status"), [(32 << 10, 200), ((32 << 10) + 1, 414), (70_000, 414), (120_000, 414)])
@pytest.mark.parametrize("piece", [1 << 20, 10_000])
def test_a_long_target_is_414_with_the_limit(small, size, status, piece):
    target = "/explore/square?x=".ljust(size, "1")
    request = f"GET {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode()
    with connected(small) as sock:
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            for start in range(0, len(request), piece):
                sock.sendall(request[start : start + piece])
        answer = parse(read_all(sock))
    if status == 200:
        assert answer[0] == 200
    else:
        assert f"at most {32 << 10} bytes" in check_problem(answer, 414)["detail"]
    assert still_serves(small)
