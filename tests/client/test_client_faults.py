"""The client without a service, or with one that fails."""

import asyncio
import socket
import time
from contextlib import closing
from email.utils import formatdate

import pytest

import pullback
from pullback import addresses, limits, reading, responses
from pullback.reading import Stream
from pullback.reports import Report, Start
from tests.client.documents import PASSING, PROBLEM, stream
from tests.client.fake_servers import Response, event_stream, json_response, problem_response
from tests.patience import PATIENCE_S

HTML = Response(200, b"<html>Welcome to nginx</html>", {"content-type": "text/html"})
OPS = json_response({"ops": []})
LIMITED = problem_response(429, "Too many requests", **{"retry-after": "0"})
BUSY = problem_response(503, "Service unavailable", **{"retry-after": "0"})
EVENTS = stream(PASSING)


@pytest.fixture
def dead_url() -> str:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{unused.getsockname()[1]}"


def requests(client: pullback.Client) -> list:
    return [client.ops, lambda: client.op("x").forward({}), lambda: list(client.checks())]


def assert_fails(url: str, kind: type[pullback.PullbackError], message: str, **options: float) -> None:
    with pullback.Client(url, **options) as client:
        for send in requests(client):
            with pytest.raises(kind, match=message) as caught:
                send()
            assert url in str(caught.value)
            assert "\n" not in str(caught.value)


def test_a_dead_address(dead_url: str) -> None:
    assert_fails(dead_url, pullback.CannotConnect, "start the service")


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://x", "http://", "http://a:b", "", " "])
def test_an_invalid_url(url: str, monkeypatch) -> None:
    monkeypatch.setenv("PULLBACK_URL", url or "nonsense")
    with pytest.raises(pullback.BadArgument, match="expected a URL such as"):
        pullback.Client(url or None)


def test_a_slow_service(fake_server) -> None:
    assert_fails(fake_server(Response(is_held=True)).url, pullback.TimedOut, "within 0.1 s", timeout=0.1)


@pytest.mark.parametrize(
    "response",
    [
        HTML,
        json_response([1]),
        json_response({"hello": "world"}),
        json_response({"ops": 3, "outputs": {"y": {"dtype": "q", "shape": [], "base64": ""}}}),
        json_response({"detail": "Not Found"}, 404),
        json_response({"type": "about:blank", "status": 404}, 404, "application/problem+json"),
        Response(204),
        Response(200, b'{"a":' * 100_000, {"content-type": "application/json"}),
        Response(400, b"[" * 100_000, {"content-type": "application/problem+json"}),
        json_response({"type": "urn:pullback:problem:x", "status": float("inf")}, 400, "application/problem+json"),
        Response(302, b"", {"location": "/login"}),
        Response(502, b"Bad Gateway", {"content-type": "text/html"}),
        Response(200, b"<html>", {"content-type": "application/x-ndjson"}),
        Response(200, b"\xff{\n", {"content-type": "application/x-ndjson"}),
    ],
)
def test_a_server_that_is_not_pullback(fake_server, response: Response) -> None:
    with pullback.Client(fake_server(response).url) as client:
        for send in requests(client)[:2]:
            with pytest.raises(pullback.NotPullback, match="is not Pullback"):
                send()


@pytest.mark.parametrize(
    ("body", "kind", "reason"),
    [
        (b"<html>", "text/html", "expected application/json, got text/html"),
        (b"{}", "", "expected application/json, got no content type"),
        (b"", "application/json", "expected a body of application/json, got an empty one"),
        (b"\x1f\x8b\x08\x00", "application/json", "got one that was compressed with gzip on its way"),
        (b"<html>hello", "application/json", r"is not JSON \(Expecting value.*\): it begins with '<html>hello'"),
        (b'{"ops": [', "application/json", r"is not JSON \(Expecting value: line 1 column 10 .*: it begins with"),
        (
            b'{"ops"\xff',
            "Application/JSON; charset=latin-1",
            r"is not JSON \('utf-8' codec .*: it begins with '{\"ops\"\N{REPLACEMENT CHARACTER}'",
        ),
        (b"[1, 2]", "application/json", r"expected a JSON object, got '\[1, 2\]'"),
        (b"{}", "application/vnd.safetensors", "labelled application/vnd.safetensors, but is not safetensors"),
    ],
)
def test_what_is_wrong_with_an_answer_is_said(fake_server, body: bytes, kind: str, reason: str) -> None:
    url = fake_server(Response(200, body, {"content-type": kind} if kind else {})).url

    async def ask() -> None:
        async with pullback.AsyncClient(url) as client:
            await client.ops()

    with pullback.Client(url) as client, pytest.raises(pullback.NotPullback, match=reason) as blocking:
        client.ops()
    with pytest.raises(pullback.NotPullback, match=reason):
        asyncio.run(ask())
    kind = kind.lower().partition(";")[0]
    assert f"expected {kind}, got {kind}" not in str(blocking.value)


def test_a_problem_of_another_service_is_told_apart(fake_server) -> None:
    foreign = json_response({"type": "about:blank", "status": 404}, 404, "application/problem+json")
    told = pytest.raises(pullback.NotPullback, match=r"404 with application/problem\+json of another service")
    with pullback.Client(fake_server(foreign).url) as client, told:
        client.ops()


@pytest.mark.parametrize("body", [b"<html>\n", b"\xff{}\n", b"[]\n", b'{"event": "start"}\n', b'{"event": "report"}\n'])
def test_a_stream_that_is_not_pullbacks(fake_server, body: bytes) -> None:
    with (
        pullback.Client(fake_server(Response(200, body, {"content-type": "application/x-ndjson"})).url) as client,
        pytest.raises(pullback.NotPullback, match="not an event"),
    ):
        list(client.checks())


def test_a_server_that_is_not_http(tmp_path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"

        async def run() -> None:
            async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")
                writer.close()
                await writer.wait_closed()

            async with (
                await asyncio.start_server(greet, sock=server.dup()),
                pullback.AsyncClient(url) as client,
            ):
                with pytest.raises(pullback.NotPullback, match="invalid HTTP"):
                    await client.ops()

        asyncio.run(run())


def test_a_busy_service_is_retried(fake_server) -> None:
    server = fake_server(BUSY, LIMITED, OPS)
    with pullback.Client(server.url) as client:
        assert client.ops() == []
    assert len(server.requests) == 3


def test_a_stream_from_a_busy_service_is_retried(fake_server) -> None:
    server = fake_server(BUSY, event_stream(*EVENTS))
    with pullback.Client(server.url) as client:
        assert len(list(client.checks())) == len(EVENTS)

    async def count(url: str) -> int:
        async with pullback.AsyncClient(url) as client:
            return len([event async for event in client.checks()])

    assert asyncio.run(count(fake_server(BUSY, event_stream(*EVENTS)).url)) == len(EVENTS)


@pytest.mark.parametrize(
    ("response", "retries", "count"),
    [
        (BUSY, 2, 3),
        (BUSY, 0, 1),
        (problem_response(503, "Service unavailable"), 3, 1),
        (problem_response(503, "Service unavailable", **{"retry-after": "3600"}), 3, 1),
        (problem_response(503, "Service unavailable", **{"retry-after": "nan"}), 3, 1),
        (problem_response(503, "Service unavailable", **{"retry-after": "soon"}), 3, 1),
        (problem_response(503, "Service unavailable", **{"retry-after": f"Mon, {10**20} Jan 2030 00:00:00 GMT"}), 3, 1),
        (problem_response(504, "Deadline passed", **{"retry-after": "0"}), 3, 1),
        (problem_response(500, "Op failed", **{"retry-after": "0"}), 3, 1),
    ],
)
def test_retries_end(fake_server, response: Response, retries: int, count: int) -> None:
    server = fake_server(response)
    with pullback.Client(server.url, retries=retries) as client, pytest.raises(pullback.ProblemError):
        client.ops()
    assert len(server.requests) == count


def test_retries_are_bounded_in_time() -> None:
    def busy(after: str) -> responses.Response:
        return responses.Response(503, {"retry-after": after}, b"")

    retries = limits.Retries(10, limits.Limit(None))
    assert [retries.pause(busy(after)) for after in ("14", "14", "14", "2")] == [14, 14, None, 2]
    retries = limits.Retries(10, limits.Limit(1000))
    assert [retries.pause(busy(after)) for after in ("29", "2", "1")] == [29, None, 1]
    assert limits.Retries(10, limits.Limit(5)).pause(busy("5")) is None
    assert responses.retry_after(busy(formatdate(time.time() - 100))) == 0
    assert 0 < responses.retry_after(busy(formatdate(time.time() + 100))) <= 100


@pytest.mark.parametrize(
    ("status", "title", "kind"),
    [
        (404, "Not found", pullback.NotFound),
        (410, "Gone", pullback.Gone),
        (412, "Verdict required", pullback.Unverified),
        (413, "Body too large", pullback.TooLarge),
        (422, "Unprocessable request", pullback.Unprocessable),
        (500, "Op failed", pullback.OpFailed),
        (500, "Internal error", pullback.ProblemError),
        (401, "Unauthorized", pullback.Unauthorized),
        (429, "Too many requests", pullback.RateLimited),
        (503, "Service unavailable", pullback.Overloaded),
        (504, "Deadline passed", pullback.DeadlinePassed),
        (418, "Teapot", pullback.ProblemError),
    ],
)
def test_every_status_has_its_error(fake_server, status: int, title: str, kind: type[pullback.ProblemError]) -> None:
    with pullback.Client(fake_server(problem_response(status, title, **{"retry-after": "7"})).url, retries=0) as client:
        for send in requests(client):
            with pytest.raises(kind, match=rf"{title} \({status}\): the reason") as caught:
                send()
            assert type(caught.value) is kind
            assert caught.value.retry_after == 7


def test_a_response_that_is_cut_short(fake_server) -> None:
    server = fake_server(Response(200, b'{"ops": [', {"content-type": "application/json"}, is_cut=True))
    with (
        pullback.Client(server.url) as client,
        pytest.raises(pullback.ConnectionLost, match="before the response was complete"),
    ):
        client.ops()


@pytest.mark.parametrize("is_cut", [True, False])
def test_a_stream_that_ends_without_a_summary(fake_server, is_cut: bool) -> None:
    with pullback.Client(fake_server(event_stream(*EVENTS[:-1], is_cut=is_cut)).url) as client:
        events = client.checks()
        assert [type(next(events)) for _ in EVENTS[:-1]][-1] is Report
        with pytest.raises(pullback.ConnectionLost):
            next(events)


def test_a_stream_that_ends_with_a_problem(fake_server) -> None:
    with pullback.Client(fake_server(event_stream(EVENTS[0], {"event": "error", "problem": PROBLEM})).url) as client:
        events = client.checks()
        assert isinstance(next(events), Start)
        with pytest.raises(pullback.DeadlinePassed, match="it took too long"):
            next(events)


def test_closing_a_stream_closes_its_connection(fake_server) -> None:
    server = fake_server(event_stream(EVENTS[0], is_held=True))
    with pullback.Client(server.url) as client:
        with closing(client.checks()) as events:
            next(events)
        assert server.finished.wait(PATIENCE_S)


def test_events_may_arrive_in_chunks_of_any_size() -> None:
    body = event_stream(EVENTS[0], {"event": "news", "of": "a later version"}, *EVENTS[1:]).body
    for size in (1, 7, len(body)):
        parser = Stream(addresses.address("http://x", 1))
        chunks = [body[i : i + size] for i in range(0, len(body), size)]
        assert len([event for chunk in chunks for event in parser.feed(chunk)]) == len(EVENTS)
        parser.end()


def test_an_event_that_does_not_end(monkeypatch) -> None:
    monkeypatch.setattr(reading, "MAX_LINE", 100)
    parser = Stream(addresses.address("http://x", 1))
    assert list(parser.feed(90 * b" ")) == []
    with pytest.raises(pullback.NotPullback, match="a line of its stream does not end"):
        list(parser.feed(20 * b" "))


def test_omitted_options_are_not_sent(fake_server) -> None:
    server = fake_server(event_stream(*EVENTS))
    with pullback.Client(server.url) as client:
        list(client.checks())
        list(client.checks(("a", "b"), orders=[1], seed=3))
    assert server.requests == [
        ("POST", "/v1/checks", {}),
        ("POST", "/v1/checks", {"orders": [1], "seed": 3, "ops": ["a", "b"]}),
    ]


@pytest.mark.parametrize(
    ("host", "is_local"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", True), ("a.com", False), ("10.0.0.1", False)],
)
def test_proxies_are_used_only_for_other_machines(host: str, is_local: bool, monkeypatch) -> None:
    for name in ("NO_PROXY", "no_proxy", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", "proxy.example:3128")
    assert addresses.is_this_machine(host) == is_local
    url = f"http://[{host}]:1" if ":" in host else f"http://{host}:1"
    assert addresses.address(url, 1).proxy == (None if is_local else "http://proxy.example:3128")


def test_no_error_shows_a_password(dead_url: str, fake_server) -> None:
    for url in (dead_url, fake_server(HTML).url):
        with (
            pullback.Client(url.replace("//", "//me:secret@")) as client,
            pytest.raises(pullback.PullbackError) as caught,
        ):
            client.ops()
        assert "secret" not in str(caught.value)
        assert url in str(caught.value)
