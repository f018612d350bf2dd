"""Connections: what clients send beside plain requests, and how a connection ends."""

import json
import logging
import queue
import re
import socket
import struct
import time

import pytest

from app.http import access_log
from app.http.connection import PIPELINED
from tests.http.test_chain import parse, read_all, serving
from tests.patience import PATIENCE_S

LIVE = b"GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n"
LAST = b"GET /health/live HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
ECHO = b"POST /echo HTTP/1.1\r\nhost: x\r\n%bcontent-length: 2\r\n\r\n{}"
UPGRADE = ECHO % b"Connection: Upgrade, HTTP2-Settings\r\nUPGRADE: h2c\r\nhttp2-settings: AAMAAABk\r\n"
CHUNKED = b"POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n"
LATE = b"GET /late HTTP/1.1\r\nhost: x\r\n\r\n"


@pytest.fixture(autouse=True)
def lines(monkeypatch) -> "queue.Queue[bytes]":
    """The log lines of requests."""
    found: queue.Queue[bytes] = queue.Queue()
    monkeypatch.setattr(access_log.STDERR, "write", lambda lines: list(map(found.put, lines)))
    return found


@pytest.fixture(autouse=True)
def no_errors(caplog):
    yield
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.fixture(scope="module")
def served():
    with serving() as one:
        yield one


@pytest.fixture
def late(served):
    """A service with a handler on ``/late`` that waits for ``let_go``."""
    served.inside.entered.clear()
    served.inside.let_go.clear()
    yield served
    served.inside.let_go.set()


def statuses(data: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+) ", data)]


def reset(sock: socket.socket) -> None:
    """Close a socket as the system does when its process dies."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


@pytest.mark.parametrize(
    "target", [b"GET ?", b"GET *", b"OPTIONS *", b"CONNECT x:1", b"CONNECT /a", b"GET http://[::1/", b"GET x:1"]
)
def test_a_target_without_a_path_is_400(served, target):
    status, headers, body = served.raw(target + b" HTTP/1.1\r\nhost: x\r\n\r\n")
    assert (status, headers["connection"]) == (400, "close")
    assert json.loads(body)["type"] == "urn:pullback:problem:malformed-request"


def test_a_whole_url_is_a_target(served):
    with served.connected() as sock:
        sock.sendall(LIVE.replace(b" /", b" http://elsewhere:1/") + LAST.replace(b"/health/live", b"http://x"))
        assert statuses(read_all(sock)) == [200, 404]


def test_an_upgrade_is_declined_wherever_it_is_cut(served):
    requests = LIVE + UPGRADE + LIVE
    with served.connected() as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for cut in range(1, len(requests), 5):
            sock.sendall(requests[:cut])
            time.sleep(0.002)
            sock.sendall(requests[cut:])
            data = b""
            while data.count(b'{"status":"live"}') < 2:
                data += sock.recv(1 << 16)
            assert statuses(data) == [200, 200, 200]
            assert b'{"bytes":2,' in data


def test_many_upgrades_in_one_read_are_declined(served):
    count = 500
    with served.connected() as sock:
        sock.sendall(UPGRADE * count + LAST)
        data = read_all(sock)
    assert statuses(data) == [200] * (count + 1)
    assert data.count(b'{"bytes":2,') == count


def test_trailers_are_not_headers(served):
    with served.connected() as sock:
        sock.sendall(CHUNKED + b"0\r\npullback-deadline-ms: x\r\n\r\n" + LAST)
        assert statuses(read_all(sock)) == [200, 200]


@pytest.mark.slow
def test_empty_lines_do_not_keep_a_connection():
    with serving(keep_alive_s=1) as one, one.connected() as sock:
        sock.sendall(LIVE + b"\r\n")
        assert statuses(read_all(sock)) == [200]
    with serving(keep_alive_s=1) as one, one.connected() as sock:
        sock.sendall(LIVE)
        time.sleep(0.2)
        sock.sendall(b"\r\n\r\n")
        assert statuses(read_all(sock)) == [200]


@pytest.mark.parametrize("wrong", [b"nonsense\r\n\r\n", CHUNKED + b"x\r\n", b"GET * HTTP/1.1\r\n\r\n"])
def test_an_error_is_answered_after_the_requests_before_it(late, wrong):
    with late.connected() as sock:
        sock.sendall(LATE + ECHO % b"" + wrong + LIVE)
        assert late.inside.entered.wait(PATIENCE_S)
        late.inside.let_go.set()
        data = read_all(sock)
    assert statuses(data) == [200, 200, 400]
    assert data.count(b"connection: close") == 1


def test_an_error_in_a_body_ends_its_own_request(served, lines):
    with served.connected() as sock:
        sock.sendall(CHUNKED)
        time.sleep(0.05)
        sock.sendall(b"x\r\n")
        assert statuses(read_all(sock)) == [400]
    assert b"POST /echo 499 " in lines.get(timeout=PATIENCE_S)


def test_the_requests_that_wait_on_a_connection_are_limited(late):
    with late.connected() as sock:
        sock.sendall(LATE + LIVE * (PIPELINED + 1))
        assert late.inside.entered.wait(PATIENCE_S)
        late.inside.let_go.set()
        assert statuses(read_all(sock)) == [200] * (PIPELINED + 1) + [503]


@pytest.mark.parametrize("following", [b"", LIVE * 3])
def test_a_client_that_leaves_before_its_answer_leaves_no_traceback(late, lines, following):
    with late.connected() as sock:
        sock.sendall(LATE + following)
        assert late.inside.entered.wait(PATIENCE_S)
        reset(sock)
    late.client.get("/health/live")
    late.inside.let_go.set()
    line = lines.get(timeout=PATIENCE_S)
    assert following or b"GET /late 499 " in line


def test_the_last_answer_while_draining_closes_the_connection(late):
    late.inside.lifecycle.draining = True
    try:
        with late.connected() as sock:
            sock.sendall(LATE + LIVE)
            assert late.inside.entered.wait(PATIENCE_S)
            sock.sendall(LIVE)
            late.inside.let_go.set()
            data = read_all(sock)
    finally:
        late.inside.lifecycle.draining = False
    assert statuses(data) == [200, 200, 200]
    assert data.count(b"connection: close") == 1
    assert late.client.get("/no/such").headers.get("connection") is None


def test_connections_over_the_limit_are_refused(serve):
    one = serve(CONNECTIONS="2")
    socks = [socket.create_connection(("127.0.0.1", one.port)) for _ in range(2)]
    try:
        for sock in socks:
            sock.sendall(LIVE)
            assert statuses(sock.recv(1 << 16)) == [200]
        with socket.create_connection(("127.0.0.1", one.port)) as third:
            status, headers, body = parse(read_all(third))
        assert (status, headers["connection"], headers["retry-after"]) == (503, "close", "1")
        assert "at most 2 connections" in json.loads(body)["detail"]
        socks[0].sendall(LAST)
        assert statuses(read_all(socks[0])) == [200]
        with socket.create_connection(("127.0.0.1", one.port)) as third:
            third.sendall(LAST)
            assert statuses(read_all(third)) == [200]
    finally:
        for sock in socks:
            sock.close()
