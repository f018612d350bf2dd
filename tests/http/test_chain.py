"""The access log and the limits around a small application, served as the launcher does."""

import asyncio
import contextlib
import json
import logging
import queue
import re
import socket
import threading
import time

import httpx
import numpy as np
import orjson
import pytest
from fastapi import APIRouter, HTTPException
from uvicorn import Config, Server

from app.errors import MAX_TEXT, Malformed, Overloaded, wrong
from app.execution.lifecycle import Lifecycle
from app.http import access_log, endings, problems
from app.http.body import Budget, ClientGone
from app.http.connection import HEAD_LIMIT, Connection
from app.http.request import Request
from app.settings import MB, Settings
from tests.http.handlers import application, limited, request_of
from tests.patience import PATIENCE_S

MIB = 1 << 20


class Inside:
    """The application under test: it answers by path and signals when it is working."""

    def __init__(self) -> None:
        self.pages = APIRouter()
        self.pages.get("/items/{number}")(self.item)
        self.pages.get("/broken")(self.broken)
        self.lifecycle = Lifecycle()
        self.entered = threading.Event()
        self.left = threading.Event()
        self.let_go = threading.Event()

    async def item(self, number: int) -> dict[str, int]:
        return {"number": number}

    async def broken(self) -> None:
        raise ZeroDivisionError("a secret")

    async def __call__(self, request: Request) -> None:
        match request.path:
            case "/echo":
                body = await request.read()
                await answer(request, {"bytes": len(body), "kind": type(body).__name__})
            case "/deadline":
                await answer(request, {"s": request.deadline.at - asyncio.get_running_loop().time()})
            case "/hold":
                self.entered.set()
                try:
                    await request.read()
                finally:
                    self.left.set()
            case "/late":
                await request.read()
                self.entered.set()
                await asyncio.to_thread(self.let_go.wait, PATIENCE_S)
                await answer(request, {})
            case "/wrong":
                raise wrong(("inputs", "x"), "not a tensor", expected="numbers", got="'a'")
            case "/raise":
                raise ZeroDivisionError("a secret")
            case "/raise-late":
                head = {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]}
                await request.send(head)
                raise ZeroDivisionError("a secret")
            case "/health/live":
                await answer(request, {"status": "live"})
            case _:
                raise HTTPException(404)


async def answer(request: Request, document) -> None:
    body = orjson.dumps(document)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await request.respond(200, headers, body)


class Started(Server):
    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()

    async def startup(self, sockets=None) -> None:
        await super().startup(sockets)
        self.ready.set()


class Served:
    def __init__(self, port: int, inside: Inside) -> None:
        self.port, self.inside = port, inside
        self.url = f"http://127.0.0.1:{port}"
        self.client = httpx.Client(base_url=self.url, timeout=PATIENCE_S, trust_env=False)

    @contextlib.contextmanager
    def connected(self):
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S) as sock:
            yield sock

    def raw(self, request: bytes) -> tuple[int, dict[str, str], bytes]:
        """Send bytes, read until the server closes, and return the response.

        The server waits for the rest of a body that it has refused, unless the client ends its side.
        """
        with self.connected() as sock:
            sock.sendall(request)
            first = sock.recv(1 << 16)
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_WR)
            return parse(first + read_all(sock))


def read_all(sock: socket.socket) -> bytes:
    data = bytearray()
    while piece := sock.recv(1 << 16):
        data += piece
    return bytes(data)


def parse(data: bytes) -> tuple[int, dict[str, str], bytes]:
    head, _, body = data.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return int(status.split()[1]), headers, body


@contextlib.contextmanager
def serving(keep_alive_s: int = 5, **changes):
    settings = Settings(**{"max_json_mb": 1, "max_body_mb": 2, "max_inflight_mb": 3, "deadline_s": 20.0, **changes})
    inside = Inside()
    app = application(inside, settings, inside.lifecycle, inside.pages)
    quiet = {"lifespan": "off", "log_config": None, "access_log": False}
    config = Config(app, http=Connection, ws="none", timeout_keep_alive=keep_alive_s, proxy_headers=False, **quiet)
    server = Started(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        served = Served(listener.getsockname()[1], inside)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            assert server.ready.wait(PATIENCE_S)
            yield served
        finally:
            served.client.close()
            server.should_exit = True
            thread.join(PATIENCE_S)
    assert not thread.is_alive()


@pytest.fixture(autouse=True)
def lines(monkeypatch) -> "queue.Queue[bytes]":
    """The log lines of requests, which may arrive after the responses."""
    found: queue.Queue[bytes] = queue.Queue()
    monkeypatch.setattr(access_log.STDERR, "write", lambda lines: list(map(found.put, lines)))
    return found


@pytest.fixture
def records():
    """The records of the log."""
    found: queue.Queue[logging.LogRecord] = queue.Queue()
    handler = logging.Handler()
    handler.emit = found.put
    logging.getLogger("pullback").addHandler(handler)
    yield found
    logging.getLogger("pullback").removeHandler(handler)


@pytest.fixture(scope="module")
def served():
    with serving() as one:
        yield one


def problem(response: httpx.Response, status: int) -> dict:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    return document(response.content, status)


def document(body: bytes, status: int) -> dict:
    found = json.loads(body)
    assert set(found) == {"type", "title", "status", "detail", "instance", "errors"}
    assert found["status"] == status
    return found


JSON = {"content-type": "application/json"}
TENSORS = {"content-type": "application/vnd.safetensors"}


@pytest.mark.parametrize("size", [0, 1, 5000, MIB])
def test_a_body_at_the_limit_is_accepted(served, size):
    response = served.client.post("/echo", content=bytes(size), headers=JSON)
    assert response.json()["bytes"] == size
    assert "connection" not in response.headers


def test_a_small_body_is_not_copied(served):
    assert served.client.post("/echo", content=b"{}", headers=JSON).json()["kind"] == "bytes"


def read(size: int, *pieces: bytes, ends: bool = True):
    """Read a binary body of a declared size from these pieces; if it does not end, the client disconnects."""

    async def test():
        bodies = []

        async def handler(request: Request) -> None:
            bodies.append(await request.read(is_binary=True))

        kind = "application/octet-stream"
        request = request_of(*pieces, ends=ends, content_type=kind, content_length=str(size))
        await limited(handler, Budget(MB))(request)
        return bodies[0]

    return asyncio.run(test())


def test_a_body_can_be_read_to_an_aligned_address():
    for pieces in ((b"0123456789",), (b"0123", b"", b"456789"), (b"01", b"2345678", b"9")):
        body = read(10, *pieces)
        assert bytes(body) == b"0123456789"
        assert np.frombuffer(body, np.uint8).ctypes.data % 64 == 0
    assert bytes(read(0)) == b""


def test_a_body_of_the_wrong_length_is_no_request():
    for pieces in ((b"0123456789a",), (b"0123", b"456789a"), (b"0123",), ()):
        with pytest.raises(Malformed, match=r"expected a body of 10 bytes \(Content-Length\)"):
            read(10, *pieces)
    with pytest.raises(ClientGone):
        read(10, b"0123", ends=False)


@pytest.mark.parametrize(
    "headers",
    [
        JSON,
        {},
        {"content-type": "Application/JSON; charset=utf-8"},
        {"content-type": "application/vnd.x+json"},
        {"content-type": "text/json"},
    ],
)
def test_json_has_its_own_limit(served, headers):
    found = problem(served.client.post("/echo", content=bytes(MIB + 1), headers=headers), 413)
    assert str(MIB) in found["detail"]
    assert str(MIB + 1) in found["detail"]


def test_other_content_types_have_the_larger_limit(served):
    assert served.client.post("/echo", content=bytes(2 * MIB), headers=TENSORS).json()["bytes"] == 2 * MIB
    problem(served.client.post("/echo", content=bytes(2 * MIB + 1), headers=TENSORS), 413)


def test_a_client_that_keeps_sending_reads_the_413(served):
    with served.connected() as sock:
        sock.sendall(b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (30 * MIB))
        sock.sendall(bytes(30 * MIB))
        status, headers, body = parse(read_all(sock))
    document(body, status)
    assert (status, headers["connection"]) == (413, "close")


def chunks(count: int, size: int):
    for _ in range(count):
        yield bytes(size)


def test_chunks_are_counted(served):
    assert served.client.post("/echo", content=chunks(16, MIB // 16), headers=JSON).json()["bytes"] == MIB
    problem(served.client.post("/echo", content=chunks(17, MIB // 16), headers=JSON), 413)


def test_tiny_chunks_are_accepted(served):
    assert served.client.post("/echo", content=chunks(2000, 16), headers=JSON).json()["bytes"] == 32000


def test_expect_100_continue_is_refused_before_the_body(served):
    head = b"POST /echo HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: %d\r\n\r\n"
    status, headers, _ = served.raw(head % (MIB + 1))
    assert (status, headers["connection"]) == (413, "close")
    with served.connected() as sock:
        sock.sendall(head % 2)
        assert sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(b"{}")
        assert b'"bytes":2' in sock.recv(1000)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "x, identity", "identity, gzip"])
def test_a_compressed_body_is_refused(served, encoding):
    response = served.client.post("/echo", content=b"{}", headers={**JSON, "content-encoding": encoding})
    assert encoding in problem(response, 415)["detail"]


@pytest.mark.parametrize("encoding", ["identity", "Identity"])
def test_identity_is_accepted(served, encoding):
    assert served.client.post("/echo", content=b"{}", headers={**JSON, "content-encoding": encoding}).is_success


def test_the_deadline_is_at_most_the_setting(served):
    def seconds(**headers: str) -> float:
        return served.client.get("/deadline", headers={k.replace("_", "-"): v for k, v in headers.items()}).json()["s"]

    assert 18 < seconds() <= 20.1
    assert 0 < seconds(pullback_deadline_ms="5000") <= 5.1
    assert 18 < seconds(pullback_deadline_ms="99999999999") <= 20.1


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "", "abc", "+5", "1_000", "٣", "9" * 19, "000"])
def test_a_deadline_must_be_a_positive_integer(served, value):
    response = served.client.get("/deadline", headers=[(b"pullback-deadline-ms", value.encode())])
    [fault] = problem(response, 422)["errors"]
    assert fault["loc"] == ["header", "Pullback-Deadline-Ms"]
    assert fault["expected"] == "a positive integer (milliseconds)"


@pytest.mark.parametrize("sent", [b"", b"0123456789"])
def test_a_slow_body_is_408(served, sent):
    began = time.monotonic()
    status, headers, body = served.raw(
        b"POST /echo HTTP/1.1\r\nhost: x\r\npullback-deadline-ms: 200\r\ncontent-length: 100\r\n\r\n" + sent
    )
    assert 0.2 <= time.monotonic() - began < 10
    assert (status, headers["connection"]) == (408, "close")
    assert f"{len(sent)} bytes" in document(body, 408)["detail"]


def test_a_full_budget_is_503_until_the_request_ends(served):
    inside = served.inside
    inside.entered.clear()
    inside.left.clear()
    with served.connected() as one, served.connected() as two:
        for sock in (one, two):
            inside.entered.clear()
            sock.sendall(
                b"POST /hold HTTP/1.1\r\nhost: x\r\ncontent-type: application/octet-stream\r\n"
                b"content-length: %d\r\n\r\n" % (3 * MIB // 2)
            )
            assert inside.entered.wait(PATIENCE_S)
        response = served.client.post("/echo", content=b"{}", headers=JSON)
        assert problem(response, 503)["title"] == "Service unavailable"
        assert response.headers["retry-after"] == "1"
        problem(served.client.post("/echo", content=chunks(1, 10), headers=JSON), 503)
        assert served.client.get("/health/live").is_success
        assert inside.lifecycle.in_flight == 2
        inside.left.clear()
        one.close()
        assert inside.left.wait(PATIENCE_S)
    assert served.client.post("/echo", content=bytes(MIB), headers=JSON).is_success


def test_a_body_over_the_whole_budget_is_413_not_503():
    with serving(max_body_mb=9) as one:
        problem(one.client.post("/echo", content=bytes(4 * MIB), headers=TENSORS), 413)


def test_a_budget_admits_up_to_its_size():
    request = request_of()
    request.budget = Budget(10)
    request.hold(10)
    with pytest.raises(Overloaded):
        request.hold(1)
    assert (request.held, request.budget.free) == (10, 0)


def test_a_disconnect_cancels_the_request(served, lines):
    served.inside.left.clear()
    with served.connected() as sock:
        sock.sendall(b"POST /hold HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n0123")
    assert served.inside.left.wait(PATIENCE_S)
    gone = lines.get(timeout=PATIENCE_S)
    assert b" 499 " in gone
    assert b"in=4 " in gone


def test_an_error_of_the_application_is_a_problem_document(served):
    response = served.client.post("/wrong", content=b"{}", headers=JSON)
    found = problem(response, 422)
    assert found["errors"] == [{"loc": ["inputs", "x"], "message": "not a tensor", "expected": "numbers", "got": "'a'"}]
    assert found["instance"] == "/wrong"


@pytest.mark.parametrize("path", ["/raise", "/broken"])
def test_an_exception_appears_only_in_the_log(served, path, records):
    response = served.client.get(path)
    assert "X-Request-Id" in problem(response, 500)["detail"]
    assert "secret" not in response.text
    record = records.get(timeout=PATIENCE_S)
    assert response.headers["x-request-id"] in record.getMessage()
    assert "a secret" in logging.Formatter().format(record)


def test_an_exception_after_the_headers_truncates_the_response(served, records):
    with pytest.raises(httpx.RemoteProtocolError):
        served.client.get("/raise-late")
    assert "a secret" in logging.Formatter().format(records.get(timeout=PATIENCE_S))


def test_routing_errors_are_problem_documents(served):
    assert "/no/such" in problem(served.client.get("/no/such"), 404)["detail"]
    response = served.client.delete("/items/1")
    problem(response, 405)
    assert response.headers["allow"] == "GET"
    [fault] = problem(served.client.get("/items/x"), 422)["errors"]
    assert fault["loc"] == ["path", "number"]
    assert fault["expected"].startswith("a valid integer")


def test_head_has_no_body(served):
    status, headers, body = served.raw(b"HEAD /no/such HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    assert (status, body) == (404, b"")
    assert int(headers["content-length"]) > 0


def test_a_request_logs_one_line(served, lines):
    response = served.client.post("/echo", content=b"{}", headers=JSON)
    line = lines.get(timeout=PATIENCE_S).decode()
    form = r"\S+Z POST /echo 200 [\d.]+ms in=2 out=%d client=127\.0\.0\.1:\d+ id=%s"
    assert re.fullmatch(form % (len(response.content), response.headers["x-request-id"]), line)


def test_a_successful_probe_logs_nothing(served, lines):
    served.client.get("/health/live")
    served.client.get("/health/none")
    assert b"/health/none 404" in lines.get(timeout=PATIENCE_S)


def test_a_safe_request_id_is_kept(served):
    for brought, kept in [("abc-1.2_3", True), ("a b", False), ("x" * 65, False), ('"},{', False)]:
        response = served.client.get("/deadline", headers={"x-request-id": brought})
        assert (response.headers["x-request-id"] == brought) is kept


def test_the_log_can_be_json_lines(lines):
    with serving(log="json") as one:
        one.client.get("/no%0a%1b[31m/such?secret=1")
    found = json.loads(lines.get(timeout=PATIENCE_S))
    assert set(found) == {"time", "method", "path", "status", "ms", "in", "out", "client", "id"}
    assert (found["path"], found["status"]) == ("/no%0a%1b[31m/such", 404)


def test_a_path_cannot_forge_a_log_line(lines):
    """Other servers pass on paths that uvicorn rejects."""

    async def inside(request):
        await answer(request, {})

    async def call(**path) -> None:
        scope = {"type": "http", "method": "GET", "headers": [], **path}
        await application(inside, Settings())(scope, None, sent)

    async def sent(message) -> None:
        pass

    asyncio.run(call(path="/a\n/b", raw_path=b"/a\x1b[2K\x9b\x00"))
    asyncio.run(call(path="/a\n2025 GET /b 200"))
    asyncio.run(call(path="/" + "a" * 5000))
    assert b"/a\\x1b[2K\\x9b\\x00 " in lines.get()
    assert b"/a%0A2025%20GET%20/b%20200 " in lines.get()
    assert len(lines.get()) < 500


def test_an_error_with_a_lone_surrogate_is_answered():
    _, headers, body = problems.render(wrong(("inputs", "\ud800"), "x" * 999, expected="", got="\ud800"), "/\udfff")
    assert json.loads(body)["errors"][0]["got"] == "\N{REPLACEMENT CHARACTER}"
    assert len(json.loads(body)["errors"][0]["message"]) == MAX_TEXT
    assert (b"content-length", b"%d" % len(body)) in headers


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"nonsense\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: abc\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999999999999999\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}",
        b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n",
        b"GET /a\x00b HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\nbad header: y\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\x00b\r\n\r\n",
    ],
)
def test_malformed_http_is_400(served, request_bytes):
    status, headers, body = served.raw(request_bytes)
    assert (status, headers["content-type"], headers["connection"]) == (400, "application/problem+json", "close")
    document(body, 400)


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"a" * MIB,
        b"GET /?" + b"a" * MIB + b" HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\nlong: " + b"a" * MIB,
        b"GET / HTTP/1.1\r\nhost: x\r\n" + b"many: a\r\n" * (MIB // 9),
        b"POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n0\r\nlong: " + b"a" * MIB,
        b"POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1;" + b"a" * MIB,
    ],
    ids=["path", "query", "one header", "many headers", "trailer", "chunk extension"],
)
def test_a_large_head_is_refused(served, head):
    with served.connected() as sock:
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            sock.sendall(head)
        with contextlib.suppress(ConnectionResetError):
            assert parse(read_all(sock))[0] in (400, 414, 431)
    assert served.client.get("/health/live").is_success


def test_a_moderate_head_is_accepted(served):
    response = served.client.get("/deadline?" + "q" * 8000, headers={"long": "a" * (HEAD_LIMIT - 10_000)})
    assert response.is_success


def test_pipelined_requests_are_answered(served):
    count = 300
    one = b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 500\r\n\r\n" + bytes(500)
    last = b"GET /deadline HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    with served.connected() as sock:
        sender = threading.Thread(target=sock.sendall, args=(one * count + last,))
        sender.start()
        data = read_all(sock)
        sender.join(PATIENCE_S)
    assert data.count(b"HTTP/1.1 200") == count + 1


@pytest.mark.parametrize(
    "begun", [b"", b"GET / HTTP/1.1\r\nhost:", b"GET /health/live HTTP/1.1\r\nhost: x\r\n\r\nGET /"]
)
def test_incomplete_headers_time_out(served, begun, monkeypatch):
    monkeypatch.setattr(endings, "HEAD_S", 0.2)
    with served.connected() as sock:
        sock.sendall(begun)
        assert b"HTTP/1.1 408" in read_all(sock)


def test_an_upgrade_is_declined(served):
    """Java's HTTP client offers h2c with every request."""
    offer = b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n"
    with served.connected() as sock:
        for size in (2, 5000):
            sock.sendall(b"POST /echo HTTP/1.1\r\nhost: x\r\n" + offer + b"content-length: %d\r\n\r\n" % size)
            sock.sendall(bytes(size))
            assert b'"bytes":%d' % size in sock.recv(1000)
