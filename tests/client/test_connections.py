"""The connections of both clients: reuse, forks, framing, timeouts, and servers that break off."""

import copy
import multiprocessing
import os
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest

import pullback
from pullback import blocking_connection, http1
from tests.client.fake_servers import Response
from tests.client.raw_servers import OK
from tests.conftest import Service
from tests.patience import PATIENCE_S

CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_a_connection_serves_many_calls(client_of, raw_server) -> None:
    server = raw_server(OK)
    with client_of(server.url) as client:
        assert [client.ops() for _ in range(5)] == [[]] * 5
    assert server.connections == 1


def test_threads_share_the_connections(raw_server) -> None:
    server = raw_server(OK)
    with pullback.Client(server.url) as client, ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda _: client.ops(), range(200))) == [[]] * 200
    assert server.connections <= 8


@pytest.mark.parametrize(
    "pieces",
    [
        tuple(bytes([byte]) for byte in OK),
        (b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", OK),
        (
            b"HTTP/1.1 200 OK\r\nCONTENT-TYPE: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
            b'4\r\n{"op\r\n7\r\ns": []}\r\n',
            b"0\r\n\r\n",
        ),
        (
            CHUNKED,
            b'b\r\n{"ops": []}\r\n0\r\nContent-Type: text/html\r\n\r\n',
        ),
        (b'HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{"ops": []}', b""),
        (b'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\n\r\n{"ops"', b": []}", b""),
    ],
    ids=["byte by byte", "informational", "chunked", "trailers", "HTTP/1.0", "until the close"],
)
def test_every_framing_is_read(client_of, raw_server, pieces: tuple[bytes, ...]) -> None:
    server = raw_server(*pieces)
    with client_of(server.url) as client:
        assert [client.ops(), client.ops()] == [[], []]
    assert server.connections == (2 if b"" in pieces else 1)


def test_a_long_body_arrives_whole(client_of, raw_server) -> None:
    ops = b'{"ops": [' + b" " * 300_000 + b"]}"
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(ops)
    cut = 2 * http1.READ + 17
    server = raw_server(head + ops[:100], ops[100:cut], ops[cut:])
    with client_of(server.url) as client:
        assert [client.ops(), client.ops()] == [[], []]
    assert server.connections == 1


def test_a_long_body_that_is_cut_is_lost(client_of, raw_server) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 300000\r\n\r\n"
    with client_of(raw_server(head, b" " * 200_000, b"").url) as client, pytest.raises(pullback.ConnectionLost):
        client.ops()


def test_a_connection_that_the_server_closed_is_not_used_again(client_of, raw_server) -> None:
    server = raw_server(OK, b"")
    with client_of(server.url) as client:
        assert client.ops() == []
        server.wait_for_connections()
        assert client.ops() == []
    assert server.connections == 2


def test_a_connection_that_failed_is_not_used_again(client_of, raw_server) -> None:
    server = raw_server(b"")
    with client_of(server.url) as client:
        for _ in range(2):
            with pytest.raises(pullback.ConnectionLost):
                client.ops()
    assert server.connections == 2


def test_a_connection_that_the_server_wants_to_close_is_not_used_again(client_of, raw_server) -> None:
    server = raw_server(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    with client_of(server.url) as client:
        assert [client.ops(), client.ops()] == [[], []]
    assert server.connections == 2


def test_connections_of_a_burst_are_closed_when_no_call_needs_them(raw_server, monkeypatch) -> None:
    monkeypatch.setattr(blocking_connection, "IDLE_S", 0.2)
    server = raw_server(OK, pause_s=0.02)
    with pullback.Client(server.url) as client:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: client.ops(), range(16)))
        assert server.connections > 1
        end = time.monotonic() + PATIENCE_S
        while server.open_connections > 1 and time.monotonic() < end:
            assert client.ops() == []
        assert server.open_connections == 1


def test_a_late_response_is_never_that_of_the_next_call(client_of, raw_server) -> None:
    server = raw_server(OK[:40])
    with client_of(server.url, timeout=0.1) as client:
        for _ in range(2):
            with pytest.raises(pullback.TimedOut):
                client.ops()
    assert server.connections == 2


@pytest.mark.parametrize(
    "head",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 500_000,
        OK + OK.replace(b"200 OK", b"404 Not Found"),
        OK + b"more",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
        CHUNKED + b"2\r\n{}\r\n0\r\n" + b"X: y\r\n" * 100_000,
    ],
    ids=["ssh", "endless", "two responses", "more bytes", "upgrade", "endless trailers"],
)
def test_a_response_that_is_not_http(client_of, raw_server, head: bytes) -> None:
    with (
        client_of(raw_server(head, b"").url) as client,
        pytest.raises(pullback.NotPullback, match="invalid HTTP"),
    ):
        client.ops()


def test_headers_keys_and_passwords_are_sent(client_of, raw_server) -> None:
    server = raw_server(OK)
    with client_of(server.url, headers={"X-Team": "a"}, api_key="k") as client:
        client.ops()
    with client_of(server.url.replace("//", "//me:s%20t@") + "/under") as client:
        client.ops()
    first, second = (head.decode() for head in server.heads)
    assert first.startswith("GET /v1/ops HTTP/1.1\r\n")
    assert "\r\nX-Team: a\r\n" in first
    assert "\r\nAuthorization: Bearer k\r\n" in first
    assert f"\r\nHost: {server.url.removeprefix('http://')}\r\n" in first
    assert second.startswith("GET /under/v1/ops HTTP/1.1\r\n")
    assert "\r\nAuthorization: Basic bWU6cyB0\r\n" in second


def test_a_header_replaces_that_of_the_client_in_any_case(client_of, raw_server) -> None:
    server = raw_server(OK)
    with client_of(server.url, headers={"host": "there", "authorization": "x"}, api_key="k") as client:
        client.ops()
    head = server.heads[0].decode().lower()
    assert (head.count("\r\nhost: "), head.count("\r\nauthorization: ")) == (1, 1)
    assert "\r\nhost: there\r\nuser-agent" in head
    assert "\r\nauthorization: x\r\n" in head


@pytest.mark.parametrize("length", [10**15 - 1, 1 << 63])
def test_a_length_that_no_memory_has(client_of, raw_server, length: int) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % length
    with (
        client_of(raw_server(head + b"{").url) as client,
        pytest.raises(pullback.NotPullback, match="does not fit into memory"),
    ):
        client.ops()


def test_a_user_name_without_a_password_is_sent(client_of, raw_server) -> None:
    server = raw_server(OK)
    with client_of(server.url.replace("//", "//a%3Ab@")) as client:
        client.ops()
    assert b"\r\nAuthorization: Basic YTpiOg==\r\n" in server.heads[0]  # a:b:


@pytest.mark.parametrize(
    "headers", [{"X": "a\r\nY: b"}, {"X Y": "a"}, {"content-LENGTH": "3"}, {"X": "é"}, {"X": 1}, [(b"X", b"y")]]
)
def test_headers_that_would_break_the_request_are_refused(headers: Any) -> None:
    for kind in (pullback.Client, pullback.AsyncClient):
        with pytest.raises(pullback.BadArgument, match="headers: "):
            kind(headers=headers)


@pytest.mark.parametrize("name", ["a\r\nY: b", "é", "\udc80"])
def test_names_that_would_break_the_request_are_refused(client_of, raw_server, name: str) -> None:
    server = raw_server(OK)
    with client_of(server.url) as client, pytest.raises(pullback.BadArgument, match="background: expected a name"):
        client.op("square").forward({"x": 1}, background=name)
    assert server.heads == []


@pytest.mark.parametrize("name", ["\udc80", 5])
def test_what_is_no_name_is_refused(name: Any) -> None:
    with pullback.Client() as client:
        for call in (client.op(name).check, client.op(name).contract, lambda: client.job(name).wait()):
            with pytest.raises(pullback.BadArgument, match="expected a name, got"):
                call()


def test_a_deadline_travels_and_ends_the_call(client_of, raw_server, fake_server) -> None:
    server = raw_server(OK)
    with client_of(server.url, timeout=None) as client:
        with pytest.raises(pullback.NotPullback):
            client.op("square").forward({"x": 1}, deadline=2)
        with pytest.raises(pullback.NotPullback):
            client.op("square").check(deadline=3)
    sent = [int(head.partition(b"Pullback-Deadline-Ms: ")[2].split(b"\r\n")[0]) for head in server.heads]
    assert 1000 < sent[0] <= 2000 < sent[1] <= 3000
    assert b"deadline" not in server.heads[0].partition(b"\r\n\r\n")[2]
    with (
        client_of(fake_server(Response(is_held=True)).url, timeout=None) as client,
        pytest.raises(pullback.TimedOut, match=r"within the deadline of 0\.05 s"),
    ):
        client.op("square").forward({"x": 1}, deadline=0.05)


@pytest.mark.parametrize("deadline", [0, -1.0, float("nan")])
def test_a_deadline_that_cannot_be_kept(deadline: float) -> None:
    with pullback.Client() as client, pytest.raises(pullback.BadArgument, match="deadline: expected seconds above 0"):
        client.op("square").forward({"x": 1}, deadline=deadline)


def test_a_closed_client_says_so(service: Service) -> None:
    client = pullback.Client(service.url)
    op = client.op("square")
    client.ops()
    client.close()
    for call in (client.ops, lambda: op.forward({"x": 1}), lambda: list(client.checks())):
        with pytest.raises(pullback.ClientClosed, match="is closed"):
            call()


def test_copies_work(service: Service) -> None:
    with pullback.Client(service.url, headers={"X-Team": "a"}, timeout=PATIENCE_S) as client:
        op = client.op("square")
        for other in (copy.copy(op), copy.deepcopy(op), pickle.loads(pickle.dumps(op))):
            assert other.forward({"x": 3}).outputs["y"] == 9
            assert repr(other) == repr(op) == f"pullback.Client('{service.url}').op('square')"
    other = pickle.loads(pickle.dumps(pullback.AsyncClient(service.url, concurrency=3)))
    assert repr(other) == f"pullback.AsyncClient('{service.url}')"


def forward(op: pullback.Op) -> float:
    return op.forward({"x": 3}).outputs["y"].item()


def test_other_processes_may_use_an_op(service: Service) -> None:
    with pullback.Client(service.url, timeout=PATIENCE_S) as client:
        op = client.op("square")
        assert forward(op) == 9
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            assert pool.map(forward, [op, op]) == [9, 9]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_has_connections_of_its_own(raw_server) -> None:
    server = raw_server(OK)
    with pullback.Client(server.url) as client:
        client.ops()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = 0 if client.ops() == [] else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        client.ops()
    assert server.connections == 2


def test_other_transports_are_used(service: Service) -> None:
    seen: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(f"{request.method} {request.url.path} {request.headers.get('authorization')}")
        return httpx.Response(200, json={"ops": []})

    with pullback.Client("http://x/under", transport=httpx.MockTransport(answer), api_key="k") as client:
        assert client.ops() == []
    with httpx.Client(transport=httpx.MockTransport(answer)) as http:
        with pullback.Client("http://x", http_client=http) as client:
            assert client.ops() == []
        assert not http.is_closed
    with pullback.Client("http://x", http_client=http) as client, pytest.raises(pullback.ClientClosed):
        client.ops()
    assert seen == ["GET /under/v1/ops Bearer k", "GET /v1/ops None"]
    with pullback.Client(service.url, transport=httpx.HTTPTransport(), timeout=PATIENCE_S) as client:
        x = np.arange(5000.0)
        np.testing.assert_array_equal(client.op("square").vjp({"x": x}).gradients["x"], 2 * x)
        assert client.op("square").forward(3.0).outputs["y"] == 9


def test_a_proxy_in_the_environment_is_used(client_of, monkeypatch, raw_server) -> None:
    proxy = raw_server(OK)
    for name in ("HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, proxy.url.replace("//", "//me:s%20t@"))
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with client_of("http://elsewhere.example/under") as client:
        assert client.ops() == []
    with client_of("https://elsewhere.example") as client, pytest.raises(pullback.CannotConnect):
        client.ops()
    plain, tunnel = proxy.heads
    assert plain.startswith(b"GET http://elsewhere.example/under/v1/ops HTTP/1.1\r\nHost: elsewhere.example\r\n")
    assert tunnel.startswith(b"CONNECT elsewhere.example:443 HTTP/1.1\r\nHost: elsewhere.example:443\r\n")
    assert all(b"\r\nProxy-Authorization: Basic bWU6cyB0\r\n" in head for head in proxy.heads)
