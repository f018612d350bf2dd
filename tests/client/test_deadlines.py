"""The deadline of a call ends it, whatever the network does. Every other time limit here is ``PATIENCE_S``."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import httpx
import numpy as np
import pytest

import pullback
from pullback import addresses, connections
from pullback.reports import Start, Summary
from tests.client.documents import PASSING, stream
from tests.client.fake_servers import event_stream, problem_response
from tests.client.raw_servers import OK
from tests.patience import PATIENCE_S, PAUSE_S

DEADLINE_S = 0.3
HUNG_S = PATIENCE_S / 5
"""Only a call that no deadline ends takes so long."""
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
# A byte every 20 ms, for much longer than HUNG_S.
BYTES = tuple(bytes([byte]) for byte in b"X-Padding: " + 10_000 * b"x")
HEADS: dict[str, tuple[bytes, ...]] = {
    "never answers": (),
    "sends its head byte by byte": (HEAD, *BYTES),
    "informs for ever": 10_000 * (b"HTTP/1.1 103 Early Hints\r\n\r\n",),
}
SERVERS: dict[str, tuple[bytes, ...]] = {
    **HEADS,
    "sends a body byte by byte": (HEAD + b"Content-Length: 60000\r\n\r\n", *BYTES),
    "sends a long body byte by byte": (HEAD + b"Content-Length: 600000\r\n\r\n", *BYTES),
    "sends chunks": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *(10_000 * (b"1\r\n \r\n",))),
}
# Almost all of these tests wait for a deadline: `make test` runs a few of each kind.
SLOW = pytest.mark.slow
SOME_SERVERS, SOME_HEADS = (
    [
        server if server in ("never answers", "sends a body byte by byte") else pytest.param(server, marks=SLOW)
        for server in all_of
    ]
    for all_of in (SERVERS, HEADS)
)
CALLS: dict[str, Callable[[pullback.Client], object]] = {
    "call": lambda client: client.op("square").forward({"x": [1.0]}, deadline=DEADLINE_S),
    "large call": lambda client: client.op("square").forward({"x": np.ones(1 << 22)}, deadline=DEADLINE_S),
    "first look at the contract": lambda client: client.op("square").vjp([1.0], deadline=DEADLINE_S),
    "check": lambda client: client.op("square").check(deadline=DEADLINE_S),
    "verify": lambda client: client.op("square").verify([1.0], [2.0], deadline=DEADLINE_S),
    "stream of checks": lambda client: list(client.checks(deadline=DEADLINE_S)),
}


@pytest.fixture(autouse=True)
def only_deadlines(monkeypatch) -> None:
    monkeypatch.setattr(addresses, "CONNECT_S", PATIENCE_S)
    for name in ("NO_PROXY", "no_proxy", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


def assert_ends(client_of: Callable[..., pullback.Client], url: str, call: str) -> None:
    start = time.monotonic()
    with client_of(url, timeout=PATIENCE_S) as client, pytest.raises(pullback.TimedOut, match=r"deadline of 0\.3 s"):
        CALLS[call](client)
    assert time.monotonic() - start < HUNG_S


@pytest.mark.parametrize("server", SOME_SERVERS)
@pytest.mark.parametrize("call", ["call", pytest.param("first look at the contract", marks=SLOW)])
def test_a_server_that_sends_little(client_of, raw_server, server: str, call: str) -> None:
    assert_ends(client_of, raw_server(*SERVERS[server], pause_s=0.02).url, call)


@pytest.mark.parametrize("server", SOME_HEADS)
def test_a_server_that_starts_no_stream(client_of, raw_server, server: str) -> None:
    assert_ends(client_of, raw_server(*HEADS[server], pause_s=0.02).url, "stream of checks")


@pytest.mark.parametrize("call", ["large call", "check", pytest.param("verify", marks=SLOW)])
def test_every_kind_of_call(client_of, raw_server, call: str) -> None:
    assert_ends(client_of, raw_server().url, call)


@pytest.mark.parametrize("server", SOME_SERVERS)
def test_a_proxy_that_sends_little(client_of, raw_server, monkeypatch, server: str) -> None:
    proxy = raw_server(*SERVERS[server], pause_s=0.02)
    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    assert_ends(client_of, "http://elsewhere.example", "call")
    assert all(head.startswith(b"POST http://elsewhere.example/v1/") for head in proxy.heads)


@pytest.mark.parametrize("call", ["call", pytest.param("stream of checks", marks=SLOW)])
@pytest.mark.parametrize("server", SOME_HEADS)
def test_a_proxy_that_opens_no_tunnel(client_of, raw_server, monkeypatch, server: str, call: str) -> None:
    proxy = raw_server(*HEADS[server], pause_s=0.02)
    monkeypatch.setenv("HTTPS_PROXY", proxy.url)
    assert_ends(client_of, "https://elsewhere.example", call)
    assert all(head.startswith(b"CONNECT elsewhere.example:443 ") for head in proxy.heads)


def test_a_deadline_that_ends_just_after_the_connection_closes_it(client_of, raw_server, monkeypatch) -> None:
    server, left = raw_server(OK), [PATIENCE_S]
    # The second time is asked for when there is a socket. An error of Python keeps what its frames hold.
    monkeypatch.setattr(
        addresses.Address, "connect_seconds", lambda *_: connections.until(time.monotonic() + left.pop())
    )
    left.insert(0, -1.0)
    with client_of(server.url, timeout=PATIENCE_S) as client, pytest.raises(pullback.CannotConnect) as raised:
        client.ops()
    until = time.monotonic() + PATIENCE_S
    while not server.closed and time.monotonic() < until:
        time.sleep(PAUSE_S)
    assert server.closed, raised


def test_a_proxy_that_shakes_no_hands(client_of, raw_server, monkeypatch) -> None:
    proxy = raw_server(b"HTTP/1.1 200 Connected\r\n\r\n")
    monkeypatch.setenv("HTTPS_PROXY", proxy.url)
    assert_ends(client_of, "https://elsewhere.example", "call")


def test_a_kept_connection_through_a_proxy(client_of, raw_server, monkeypatch) -> None:
    proxy = raw_server(OK)
    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    with client_of("http://elsewhere.example", timeout=PATIENCE_S) as client:
        assert client.ops() == []
        proxy.pieces, proxy.pause_s = SERVERS["sends its head byte by byte"], 0.02
        with pytest.raises(pullback.TimedOut, match=r"deadline of 0\.3 s"):
            CALLS["call"](client)
    assert proxy.connections == 1


@pytest.mark.parametrize("call", ["call", pytest.param("stream of checks", marks=SLOW)])
def test_a_server_that_shakes_no_hands(client_of, raw_server, call: str) -> None:
    assert_ends(client_of, raw_server().url.replace("http:", "https:"), call)


@pytest.fixture
def full_port() -> Iterator[int]:
    """Return a port of this machine where connecting hangs: the queue of the listener is full."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(8):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


@pytest.mark.parametrize("scheme", ["http", pytest.param("https", marks=SLOW)])
@pytest.mark.parametrize(
    "call", ["call", *(pytest.param(call, marks=SLOW) for call in ("first look at the contract", "stream of checks"))]
)
def test_a_connection_that_hangs(client_of, full_port: int, call: str, scheme: str) -> None:
    assert_ends(client_of, f"{scheme}://127.0.0.1:{full_port}", call)


def test_a_proxy_that_takes_no_connection(client_of, full_port: int, monkeypatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{full_port}")
    assert_ends(client_of, "http://elsewhere.example", "call")


@SLOW
def test_every_address_of_a_host_gets_its_share(client_of, full_port: int, raw_server, monkeypatch) -> None:
    """The first addresses hang, the last one answers."""
    server = raw_server(OK)
    hung = connections.SocketAddress(socket.AF_INET, ("127.0.0.1", full_port))

    def look_up(host: str, port: int, found: connections.Found) -> None:
        found.set_result([hung, hung, connections.SocketAddress(socket.AF_INET, ("127.0.0.1", server.port))])

    monkeypatch.setattr(connections, "_look_up", look_up)
    monkeypatch.setattr(addresses, "CONNECT_S", 2.0)
    with client_of(f"http://somewhere.example:{server.port}", timeout=PATIENCE_S) as client:
        assert client.ops() == []
        with pytest.raises(pullback.NotPullback):
            list(client.checks())


@pytest.mark.parametrize("call", ["call", pytest.param("stream of checks", marks=SLOW)])
def test_a_look_up_that_hangs(client_of, monkeypatch, call: str) -> None:
    released = threading.Event()

    def hang(*args: object, **options: object) -> list:
        released.wait(PATIENCE_S)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    try:
        assert_ends(client_of, "http://somewhere.example", call)
    finally:
        released.set()


def test_pauses_between_retries(client_of, fake_server) -> None:
    """The deadline passes before the next try, so the answer is the last refusal, at once."""
    busy = fake_server(problem_response(503, "Service unavailable", **{"retry-after": "20"}))
    with client_of(busy.url) as client:
        for send in (lambda: client.op("square").check(deadline=15), lambda: list(client.checks(deadline=15))):
            with pytest.raises(pullback.Overloaded):
                send()
    assert len(busy.requests) == 2


def test_a_stream_that_stops(client_of, fake_server) -> None:
    events = event_stream(*stream(PASSING)[:-1], is_held=True)
    assert_ends(client_of, fake_server(events).url, "stream of checks")


def test_a_stream_that_goes_on(client_of, raw_server) -> None:
    line = b'{"event": "of a later version"}\n'
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n"
    assert_ends(client_of, raw_server(head, *(10_000 * (line,)), pause_s=0.02).url, "stream of checks")


@SLOW
def test_the_time_between_events_belongs_to_the_caller(fake_server) -> None:
    events = event_stream(*stream(PASSING))
    with pullback.Client(fake_server(events).url, timeout=PATIENCE_S) as client:
        checks = client.checks(deadline=1)
        first = next(checks)
        time.sleep(1.5)
        assert isinstance([first, *checks][-1], Summary)

    async def last(url: str) -> object:
        async with pullback.AsyncClient(url, timeout=PATIENCE_S) as client:
            event = None
            async for event in client.checks(deadline=1):
                if isinstance(event, Start):
                    await asyncio.sleep(1.5)
            return event

    assert isinstance(asyncio.run(last(fake_server(events).url)), Summary)


@pytest.mark.parametrize("server", ["never answers", pytest.param("sends a body byte by byte", marks=SLOW)])
def test_clients_of_the_caller(raw_server, server: str) -> None:
    """As far as httpx lets it, the deadline limits them too: each wait, and between the pieces of a body."""
    url = raw_server(*SERVERS[server], pause_s=0.02).url
    ends = pytest.raises(pullback.TimedOut, match=r"deadline of 0\.3 s")
    with httpx.Client(timeout=PATIENCE_S) as http, pullback.Client(url, http_client=http) as client, ends:
        CALLS["call"](client)
    with pullback.Client(url, transport=httpx.HTTPTransport(), timeout=PATIENCE_S) as client, ends:
        CALLS["call"](client)

    async def run() -> None:
        async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
            for options in ({"http_client": http}, {"transport": httpx.AsyncHTTPTransport(), "timeout": PATIENCE_S}):
                async with pullback.AsyncClient(url, **options) as client:
                    with ends:
                        await client.op("square").forward({"x": [1.0]}, deadline=DEADLINE_S)

    asyncio.run(run())
