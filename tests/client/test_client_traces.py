"""The client names the span of its caller in each request, if the application has loaded OpenTelemetry's API."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import httpx
import pytest
from opentelemetry.trace import INVALID_SPAN, NonRecordingSpan, SpanContext, TraceFlags, TraceState, use_span

import pullback
from pullback.gradcheck.of.json_server import JsonServer
from tests.client import documents
from tests.client.both_clients import CLIENTS
from tests.client.conftest import ROOT, client_environment
from tests.client.raw_servers import OK, RawServer

TRACE, SPAN = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
SUMMARY = b"".join(json.dumps(event).encode() + b"\n" for event in documents.stream())
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nContent-Length: %d\r\n\r\n%s" % (
    len(SUMMARY),
    SUMMARY,
)


def span(flags: int = TraceFlags.SAMPLED, **state: str) -> NonRecordingSpan:
    context = SpanContext(
        TRACE, SPAN, is_remote=False, trace_flags=TraceFlags(flags), trace_state=TraceState([*state.items()])
    )
    return NonRecordingSpan(context)


@pytest.fixture
def server(request) -> Iterator[RawServer]:
    one = RawServer(getattr(request, "param", OK))
    yield one
    one.stop()


def traces(server: RawServer) -> list[dict[str, str]]:
    """Return the headers of traces in each request that the server got."""
    found: list[dict[str, str]] = []
    for head in server.heads:
        lines = [line.decode().partition(": ") for line in head.split(b"\r\n\r\n")[0].split(b"\r\n")[1:]]
        kept = [(name.lower(), value) for name, _, value in lines if name.lower().startswith("trace")]
        assert len(dict(kept)) == len(kept), "a header is there twice"
        found.append(dict(kept))
    return found


WAYS: dict[str, Callable[..., Any]] = {
    **CLIENTS,
    "httpx": lambda url, **options: pullback.Client(url, transport=httpx.HTTPTransport(), **options),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("flags", [0, 1, 3])
def test_the_current_span_is_sent_with_its_flags(server: RawServer, way: str, flags: int) -> None:
    for current in (INVALID_SPAN, span(flags, vendor="x-1"), span(flags)):
        # A runner of asyncio keeps the context of its first call.
        with use_span(current), WAYS[way](server.url) as client:
            client.ops()
    sent = {"traceparent": f"00-{TRACE:032x}-{SPAN:016x}-{flags:02x}"}
    assert traces(server) == [{}, {**sent, "tracestate": "vendor=x-1"}, sent]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["traceparent", "TraceState"])
def test_a_header_of_the_client_comes_first(server: RawServer, way: str, name: str) -> None:
    with use_span(span()), WAYS[way](server.url, headers={name: "of=the-caller"}) as client:
        client.ops()
    assert traces(server) == [{name.lower(): "of=the-caller"}]


@pytest.mark.parametrize("server", [STREAM], indirect=True)
@pytest.mark.parametrize("way", ["blocking", "asyncio"])
def test_streams_of_checks_have_it_too(server: RawServer, way: str) -> None:
    with use_span(span()), WAYS[way](server.url) as client:
        list(client.checks())
    assert [set(found) for found in traces(server)] == [{"traceparent"}]


def test_checks_of_other_servers_have_it_too(server: RawServer) -> None:
    with closing(JsonServer(server.url, 10.0)) as other, use_span(span()):
        other.get("/info")
    assert [set(found) for found in traces(server)] == [{"traceparent"}]


ALONE = """
import sys, pullback
with pullback.Client(sys.argv[1]) as client:
    client.ops()
print([name for name in sys.modules if "opentelemetry" in name])
"""


def test_the_client_loads_nothing(server: RawServer) -> None:
    command = [sys.executable, "-c", ALONE, server.url]
    done = subprocess.run(command, env=client_environment(), cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    assert traces(server) == [{}]
