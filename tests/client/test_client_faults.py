"""The client where there is no service, or none in good health."""

import asyncio
import socket
import time
from contextlib import closing
from email.utils import formatdate

import httpx
import pytest

import pullback
from pullback import transport
from pullback.reports import Report, Start
from tests.client.strange_servers import Answer, of_events, of_json, of_problem
from tests.client.told import PASSING, PROBLEM, stream
from tests.patience import PATIENCE_S

HTML = Answer(200, b"<html>Welcome to nginx</html>", {"content-type": "text/html"})
OPS = of_json({"ops": []})
BUSY = of_problem(503, "Service unavailable", **{"retry-after": "0"})
EVENTS = stream(PASSING)


@pytest.fixture
def dead() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{one.getsockname()[1]}"


def asks(client: pullback.Client) -> list:
    return [client.ops, lambda: client.op("x").forward({}), lambda: list(client.checks())]


def fails(url: str, kind: type[pullback.PullbackError], told: str, **options: float) -> None:
    with pullback.Client(url, **options) as client:
        for ask in asks(client):
            with pytest.raises(kind, match=told) as caught:
                ask()
            assert url in str(caught.value)
            assert "\n" not in str(caught.value)


def test_a_dead_address(dead: str) -> None:
    fails(dead, pullback.CannotConnect, "start the service")


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://x", "http://", "http://a:b", "", " "])
def test_what_is_no_url(url: str, monkeypatch) -> None:
    monkeypatch.setenv("PULLBACK_URL", url or "nonsense")
    with pytest.raises(pullback.BadArgument, match="expected a URL such as"):
        pullback.Client(url or None)


def test_a_slow_service(strange) -> None:
    fails(strange(Answer(is_held=True)).url, pullback.TimedOut, "within 0.1 s", timeout=0.1)


@pytest.mark.parametrize(
    "answer",
    [
        HTML,
        of_json([1]),
        of_json({"hello": "world"}),
        of_json({"ops": 3, "outputs": {"y": {"dtype": "q", "shape": [], "base64": ""}}}),
        of_json({"detail": "Not Found"}, 404),
        of_json({"type": "about:blank", "status": 404}, 404, "application/problem+json"),
        Answer(302, b"", {"location": "/login"}),
        Answer(502, b"Bad Gateway", {"content-type": "text/html"}),
        Answer(200, b"<html>", {"content-type": "application/x-ndjson"}),
        Answer(200, b"\xff{\n", {"content-type": "application/x-ndjson"}),
    ],
)
def test_what_is_not_pullback(strange, answer: Answer) -> None:
    with pullback.Client(strange(answer).url) as client:
        for ask in asks(client)[:2]:
            with pytest.raises(pullback.NotPullback, match="is not Pullback"):
                ask()


@pytest.mark.parametrize("body", [b"<html>\n", b"\xff{}\n", b"[]\n", b'{"event": "start"}\n', b'{"event": "report"}\n'])
def test_a_stream_that_is_not_ours(strange, body: bytes) -> None:
    with (
        pullback.Client(strange(Answer(200, body, {"content-type": "application/x-ndjson"})).url) as client,
        pytest.raises(pullback.NotPullback, match="no event"),
    ):
        list(client.checks())


def test_what_does_not_speak_http(tmp_path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"

        async def ask() -> None:
            async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")
                writer.close()
                await writer.wait_closed()

            async with await asyncio.start_server(greet, sock=server.dup()), pullback.AsyncClient(url) as client:
                with pytest.raises(pullback.NotPullback, match="does not speak HTTP"):
                    await client.ops()

        asyncio.run(ask())


def test_a_busy_service_is_asked_again(strange) -> None:
    server = strange(BUSY, BUSY, OPS)
    with pullback.Client(server.url) as client:
        assert client.ops() == []
    assert len(server.requests) == 3


def test_a_busy_service_is_asked_again_for_a_stream(strange) -> None:
    server = strange(BUSY, of_events(*EVENTS))
    with pullback.Client(server.url) as client:
        assert len(list(client.checks())) == len(EVENTS)

    async def ask(url: str) -> int:
        async with pullback.AsyncClient(url) as client:
            return len([event async for event in client.checks()])

    assert asyncio.run(ask(strange(BUSY, of_events(*EVENTS)).url)) == len(EVENTS)


@pytest.mark.parametrize(
    ("answer", "retries", "count"),
    [
        (BUSY, 2, 3),
        (BUSY, 0, 1),
        (of_problem(503, "Service unavailable"), 3, 1),
        (of_problem(503, "Service unavailable", **{"retry-after": "3600"}), 3, 1),
        (of_problem(503, "Service unavailable", **{"retry-after": "nan"}), 3, 1),
        (of_problem(503, "Service unavailable", **{"retry-after": "soon"}), 3, 1),
        (of_problem(504, "Deadline passed", **{"retry-after": "0"}), 3, 1),
        (of_problem(500, "Op failed", **{"retry-after": "0"}), 3, 1),
    ],
)
def test_nothing_is_asked_for_ever(strange, answer: Answer, retries: int, count: int) -> None:
    server = strange(answer)
    with pullback.Client(server.url, retries=retries) as client, pytest.raises(pullback.ProblemError):
        client.ops()
    assert len(server.requests) == count


def test_retries_are_bounded_in_time() -> None:
    def busy(after: str) -> httpx.Response:
        return httpx.Response(503, headers={"retry-after": after})

    retries = transport.Retries(10, seconds=5)
    assert [retries.pause(busy(after)) for after in ("2", "2", "2", "1")] == [2, 2, None, 1]
    assert transport.retry_after(busy(formatdate(time.time() - 100))) == 0
    assert 0 < transport.retry_after(busy(formatdate(time.time() + 100))) <= 100


@pytest.mark.parametrize(
    ("status", "title", "kind"),
    [
        (404, "Not found", pullback.NotFound),
        (413, "Body too large", pullback.TooLarge),
        (422, "Unprocessable request", pullback.Unprocessable),
        (500, "Op failed", pullback.OpFailed),
        (500, "Internal error", pullback.ProblemError),
        (503, "Service unavailable", pullback.Overloaded),
        (504, "Deadline passed", pullback.DeadlinePassed),
        (418, "Teapot", pullback.ProblemError),
    ],
)
def test_every_status_has_its_error(strange, status: int, title: str, kind: type[pullback.ProblemError]) -> None:
    with pullback.Client(strange(of_problem(status, title, **{"retry-after": "7"})).url, retries=0) as client:
        for ask in asks(client):
            with pytest.raises(kind, match=rf"{title} \({status}\): so it is") as caught:
                ask()
            assert type(caught.value) is kind
            assert caught.value.retry_after == 7


def test_an_answer_that_is_cut_short(strange) -> None:
    server = strange(Answer(200, b'{"ops": [', {"content-type": "application/json"}, is_cut=True))
    with pullback.Client(server.url) as client, pytest.raises(pullback.ConnectionLost, match="before its answer"):
        client.ops()


@pytest.mark.parametrize("is_cut", [True, False])
def test_a_stream_that_ends_without_a_summary(strange, is_cut: bool) -> None:
    with pullback.Client(strange(of_events(*EVENTS[:-1], is_cut=is_cut)).url) as client:
        events = client.checks()
        assert [type(next(events)) for _ in EVENTS[:-1]][-1] is Report
        with pytest.raises(pullback.ConnectionLost):
            next(events)


def test_a_stream_that_ends_with_a_problem(strange) -> None:
    with pullback.Client(strange(of_events(EVENTS[0], {"event": "error", "problem": PROBLEM})).url) as client:
        events = client.checks()
        assert isinstance(next(events), Start)
        with pytest.raises(pullback.DeadlinePassed, match="it took too long"):
            next(events)


def test_leaving_a_stream_closes_its_connection(strange) -> None:
    server = strange(of_events(EVENTS[0], is_held=True))
    with pullback.Client(server.url) as client:
        with closing(client.checks()) as events:
            next(events)
        assert server.left.wait(PATIENCE_S)


def test_events_come_in_whatever_pieces() -> None:
    body = of_events(EVENTS[0], {"event": "news", "of": "a later version"}, *EVENTS[1:]).body
    for size in (1, 7, len(body)):
        found = transport.Stream(transport.address("http://x", 1))
        pieces = [body[i : i + size] for i in range(0, len(body), size)]
        assert len([event for piece in pieces for event in found.feed(piece)]) == len(EVENTS)
        found.end()


def test_only_what_was_given_is_sent(strange) -> None:
    server = strange(of_events(*EVENTS))
    with pullback.Client(server.url) as client:
        list(client.checks())
        list(client.checks(("a", "b"), orders=[1], seed=3))
    assert server.requests == [
        ("POST", "/v1/checks", {}),
        ("POST", "/v1/checks", {"orders": [1], "seed": 3, "ops": ["a", "b"]}),
    ]


@pytest.mark.parametrize(
    ("host", "is_ours"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", True), ("a.com", False), ("10.0.0.1", False)],
)
def test_the_proxies_of_the_environment_are_for_others(host: str, is_ours: bool) -> None:
    assert transport.is_this_machine(host) == is_ours
    url = f"http://[{host}]:1" if ":" in host else f"http://{host}:1"
    assert transport.address(url, 1).options()["trust_env"] == (not is_ours)


def test_no_error_shows_a_password(dead: str, strange) -> None:
    for url in (dead, strange(HTML).url):
        with (
            pullback.Client(url.replace("//", "//me:secret@")) as client,
            pytest.raises(pullback.PullbackError) as caught,
        ):
            client.ops()
        assert "secret" not in str(caught.value)
        assert url in str(caught.value)
