"""The spans that a service exports, as a collector gets them, whichever path the requests take."""

import http.client
import itertools
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import Service, Start
from tests.patience import PATIENCE_S
from tests.telemetry.collector import Collector, Sent

SERVER = 2
UNSET, FAILED = 0, 2
NS = 1e9
STAGES = ("parse", "queue", "compute", "serialise")
JSON = {"content-type": "application/json"}
# An op whose refusal says what of OpenTelemetry's SDK the process has imported.
PAGE = """
import sys

import numpy as np

from ops import Example, Input, Op, Output


def forward(x):
    return x


def validate(inputs, attrs):
    if np.all(inputs["x"] == 7):
        names = [name for name in sys.modules if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter"))]
        raise ValueError(f"imported {len(names)} modules, spans: {'app.telemetry.spans' in sys.modules}")


OP = Op(
    name="modules",
    summary="x",
    doc="x",
    source="x",
    function=forward,
    reference=np.asarray,
    inputs=(Input("x"),),
    outputs=(Output("y"),),
    examples=(Example("one", {"x": [1.0]}),),
    validate=validate,
)
"""
_numbers = itertools.count(1)


def trace_id() -> str:
    return f"{next(_numbers):032x}"


def parent(trace: str, flags: str = "01", span: str = "00f067aa0ba902b7") -> dict[str, str]:
    return {"traceparent": f"00-{trace}-{span}-{flags}"}


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    one = Collector()
    yield one
    one.stop()


@pytest.fixture(scope="module")
def exporting(collector: Collector) -> Iterator[None]:
    """Let the services that start inside this fixture export to the collector."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        patch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=tests")
        yield


@pytest.fixture(scope="module")
def traced(exporting: None, start_for_module: Start) -> Service:
    """A service that exports spans."""
    return start_for_module(OTEL="1", LOG="json", DEADLINE_S="30").wait_until_ready()


@pytest.fixture
def caller(traced: Service) -> Iterator[httpx.Client]:
    with traced.client() as one:
        yield one


def ask(caller: httpx.Client, x: Any = (1.0, 2.0), to: str = "square/vjp", **headers: str) -> httpx.Response:
    return caller.post(f"/v1/ops/{to}", content=json.dumps({"inputs": {"x": x}}), headers={**JSON, **headers})


def total(caller: httpx.Client, name: str, **labels: str) -> float:
    text = caller.get("/metrics").text
    samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    return sum(one.value for one in samples if one.name == name and labels.items() <= one.labels.items())


def on_path(path: str, number: int) -> dict[str, str]:
    """Return headers with which a request takes a path: others in each request lead to the general one."""
    return {} if path == "fast" else {"x-of-test": str(number)}


def server_of(spans: list[Sent]) -> Sent:
    (one,) = (span for span in spans if span.kind == SERVER)
    return one


@pytest.mark.parametrize("path", ["fast", "general"])
def test_a_request_continues_the_trace_of_its_caller(
    traced: Service, collector: Collector, caller: httpx.Client, path: str
) -> None:
    before = total(caller, "pullback_express_requests_total")
    traces = [trace_id() for _ in range(8)]
    for number, trace in enumerate(traces):
        answer = ask(caller, [number, 0.5], **parent(trace), tracestate="vendor=1", **on_path(path, number))
        assert answer.status_code == 200
    assert (total(caller, "pullback_express_requests_total") > before) == (path == "fast")
    spans = collector.trace(traces[-1])
    server = server_of(spans)
    assert server.name == "POST /v1/ops/{op}/vjp"
    assert (server.parent_id, server.status, server.state) == ("00f067aa0ba902b7", UNSET, "vendor=1")
    assert server.attributes == {
        "http.request.method": "POST",
        "http.route": "/v1/ops/{op}/vjp",
        "http.response.status_code": 200,
        "url.scheme": "http",
        "url.path": "/v1/ops/square/vjp",
        "pullback.op": "square",
        "pullback.operation": "vjp",
        "pullback.request.id": answer.headers["x-request-id"],
    }
    assert server.resource["service.name"] == "pullback"
    assert server.resource["deployment.environment.name"] == "tests"
    stages = [span for span in spans if span is not server]
    assert {span.name for span in stages} == set(STAGES) or {span.name for span in stages} == {*STAGES} - {"queue"}
    for span in stages:
        assert span.parent_id == server.span_id
        assert server.began <= span.began <= span.ended <= server.ended
    line = json.loads(traced.log_with(server.attributes["pullback.request.id"]).splitlines()[-1])
    assert (line["trace_id"], line["span_id"]) == server.ids
    assert "parent_span_id" not in line


@pytest.mark.parametrize("path", ["fast", "general"])
def test_a_caller_that_does_not_sample_gets_no_spans(
    traced: Service, collector: Collector, caller: httpx.Client, path: str
) -> None:
    unsampled, sampled, invalid = [trace_id() for _ in range(6)], trace_id(), trace_id()
    for number, trace in enumerate(unsampled):
        answer = ask(caller, [number, 0.25], **parent(trace, "00"), **on_path(path, number))
    name = answer.headers["x-request-id"]
    line = next(json.loads(line) for line in traced.log_with(name).splitlines() if name in line)
    assert (line["trace_id"], line["parent_span_id"]) == (unsampled[-1], "00f067aa0ba902b7")
    assert "span_id" not in line
    # An invalid header is none: a new trace begins.
    odd = {"traceparent": f"00-{invalid}-00f067aa0ba902b7-01-more"}
    answer = ask(caller, [0.1, 0.25], **odd, **on_path(path, 98))
    of_answer = {"pullback.request.id": answer.headers["x-request-id"]}
    (root,) = collector.wait_for(lambda span: of_answer.items() <= span.attributes.items())
    assert root.parent_id == ""
    ask(caller, [0.1, 0.25], **parent(sampled), **on_path(path, 99))
    collector.trace(sampled)
    assert not {span.trace_id for span in collector.spans} & {*unsampled, invalid}


def test_two_parents_are_none_and_two_states_are_one(traced: Service, collector: Collector) -> None:
    body, trace = b'{"inputs":{"x":[3]}}', trace_id()
    head = "POST /v1/ops/square/vjp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    value = parent(trace)["traceparent"]
    for names in (["traceparent", "TraceParent"], ["traceparent", "tracestate", "Tracestate"]):
        values = [value, value] if len(names) == 2 else [value, "a=1", "b=2"]
        lines = "".join(f"{name}: {text}\r\n" for name, text in zip(names, values, strict=True))
        with closing(socket.create_connection(("127.0.0.1", traced.port), PATIENCE_S)) as connection:
            connection.sendall(f"{head}{lines}content-length: {len(body)}\r\n\r\n".encode() + body)
            assert b" 200 OK" in connection.recv(4096)
    server = server_of(collector.trace(trace))
    assert server.state == "a=1,b=2"
    assert [span for span in collector.spans if span.trace_id == trace and span.kind == SERVER] == [server]


def together(traced: Service, traces: list[str], path: str, round: int) -> None:
    """Send a request of each trace on a connection of its own, all at once."""
    with ExitStack() as stack:
        connections = [
            stack.enter_context(closing(http.client.HTTPConnection("127.0.0.1", traced.port, timeout=PATIENCE_S)))
            for _ in traces
        ]
        for connection in connections:
            connection.connect()
        for number, (connection, trace) in enumerate(zip(connections, traces, strict=True)):
            body = json.dumps({"inputs": {"x": [number + 0.5, float(round)]}})
            headers = {**JSON, **parent(trace), **on_path(path, 1000 * round + number)}
            connection.request("POST", "/v1/ops/safe_norm/vjp", body, headers)
        for connection in connections:
            assert connection.getresponse().status == 200


@pytest.mark.parametrize("path", ["fast", "general"])
def test_a_batch_links_to_its_members_and_they_to_it(traced: Service, collector: Collector, path: str) -> None:
    batch, members = None, set[str]()
    for round in range(200):
        traces = [trace_id() for _ in range(6)]
        together(traced, traces, path, round)
        for trace in traces:
            collector.trace(trace)
        batches = [span for span in collector.spans if span.name == "batch"]
        batch = next((span for span in batches if {link[0] for link in span.links} <= {*traces}), None)
        if batch is not None:
            members = {link[0] for link in batch.links}
            break
    assert batch is not None
    # Its own trace, because it has several parents.
    assert batch.parent_id == ""
    assert batch.trace_id not in members
    size = len(batch.links)
    assert size == len(members) > 1
    assert batch.attributes == {"pullback.op": "safe_norm", "pullback.operation": "vjp", "pullback.batch.size": size}
    (run,) = (span for span in collector.spans if span.parent_id == batch.span_id)
    assert (run.name, run.trace_id, run.began, run.ended) == ("TensorFlow", batch.trace_id, batch.began, batch.ended)
    for link in batch.links:
        spans = [span for span in collector.spans if span.trace_id == link[0]]
        server = server_of(spans)
        assert server.ids == link
        computed = [span for span in spans if span.name == "compute" and span.links]
        assert [span.links for span in computed] == [[batch.ids]]
        # The clocks of several requests are set to that of the day one by one.
        assert abs(computed[0].began - batch.began) < 1e6
        assert (computed[0].ended - computed[0].began) == pytest.approx(batch.ended - batch.began, abs=2)
        assert {span.name for span in spans} >= {"queue", "compute", "serialise"}


def test_spans_and_metrics_are_one_account(collector: Collector, caller: httpx.Client) -> None:
    """The times of the stages of lone requests add up to what the counters have added up."""
    traces, labels = [trace_id() for _ in range(5)], {"op": "log1pexp2", "operation": "gradients"}
    for number, trace in enumerate(traces):
        headers = {**parent(trace), **on_path("general", number)}
        assert ask(caller, [number, 1.5], "log1pexp2/gradients", **headers).is_success
    spans = [span for trace in traces for span in collector.trace(trace)]
    for stage in STAGES:
        spent = sum(span.ended - span.began for span in spans if span.name == stage) / NS
        assert spent == pytest.approx(total(caller, f"pullback_{stage}_seconds_total", **labels), abs=1e-6), stage


SECRET = "hunter2"


class Asked(NamedTuple):
    """A request, its answer's status, and the name of its span."""

    method: str
    target: str
    body: bytes
    status: int
    name: str


REQUESTS = [
    Asked("POST", "/v1/ops/square/vjp", b"{", 400, "POST /v1/ops/{op}/vjp"),
    Asked("POST", "/v1/ops/square/vjp", b'{"inputs":{"x":["%s"]}}' % SECRET.encode(), 422, "POST /v1/ops/{op}/vjp"),
    Asked("POST", "/v1/ops/unknown/vjp", b"{}", 404, "POST /v1/ops/{op}/vjp"),
    Asked("GET", f"/nowhere?key={SECRET}", b"", 404, "GET"),
    Asked("PROPFIND", "/nowhere", b"", 404, "HTTP"),
    Asked("DELETE", "/v1/ops/square/vjp", b"", 405, "DELETE /v1/ops/{op}/vjp"),
    Asked("GET", "/v2/models/square.vjp", b"", 200, "GET /v2/models/{model}"),
    Asked("GET", "/Info", b"", 200, "GET /Info"),
    Asked("POST", "/ModelInfo", b'{"name":"square"}', 200, "POST /ModelInfo"),
    Asked("POST", "/mcp", b'{"jsonrpc":"2.0","id":1,"method":"ping"}', 200, "POST /mcp"),
    Asked("POST", "/v1/checks", b'{"ops":["square"],"checks":["derivative"]}', 200, "POST /v1/checks"),
]


@pytest.mark.parametrize("asked", REQUESTS, ids=str)
def test_every_request_has_a_span_without_what_is_secret(
    collector: Collector, caller: httpx.Client, asked: Asked
) -> None:
    trace = trace_id()
    headers = {**JSON, **parent(trace), "authorization": f"Bearer {SECRET}", "cookie": SECRET, "user-agent": SECRET}
    answer = caller.request(asked.method, asked.target, content=asked.body, headers=headers)
    assert answer.status_code == asked.status, answer.text
    spans = collector.trace(trace)
    server = server_of(spans)
    assert (server.name, server.status) == (asked.name, UNSET)
    assert server.attributes["http.response.status_code"] == asked.status
    assert server.attributes["http.request.method"] == (asked.method if asked.name != "HTTP" else "_OTHER")
    assert "error.type" not in server.attributes
    assert SECRET not in repr(spans)
    assert len(server.attributes) < 12
    assert all(len(str(value)) <= 300 for value in server.attributes.values())


def test_a_deadline_that_passes_is_an_error(collector: Collector, caller: httpx.Client) -> None:
    trace = trace_id()
    headers = {**parent(trace), "pullback-deadline-ms": "1"}
    assert caller.post("/v1/ops/square/check", json={}, headers=headers).status_code == 504
    server = server_of(collector.trace(trace))
    assert (server.status, server.attributes["error.type"]) == (FAILED, "504")
    assert server.attributes["http.response.status_code"] == 504


def test_a_client_that_leaves_is_an_error_without_a_status(traced: Service, collector: Collector) -> None:
    trace = trace_id()
    lines = "".join(f"{name}: {value}\r\n" for name, value in {**JSON, **parent(trace)}.items())
    head = f"POST /v1/ops/square/vjp HTTP/1.1\r\nhost: localhost\r\n{lines}content-length: 90\r\n\r\n"
    with closing(socket.create_connection(("127.0.0.1", traced.port), PATIENCE_S)) as connection:
        connection.sendall(head.encode() + b'{"inputs"')
        time.sleep(0.05)
    server = server_of(collector.trace(trace))
    assert (server.status, server.attributes["error.type"]) == (FAILED, "client_gone")
    assert "http.response.status_code" not in server.attributes


def test_probes_have_no_spans(collector: Collector, caller: httpx.Client) -> None:
    probed, marker = trace_id(), trace_id()
    for path in ("/health/live", "/health/ready", "/v2/health/ready", "/metrics"):
        assert caller.get(path, headers=parent(probed)).status_code == 200
    ask(caller, **parent(marker))
    collector.trace(marker)
    assert probed not in {span.trace_id for span in collector.spans}


def test_histograms_have_exemplars_of_sampled_requests(caller: httpx.Client) -> None:
    sampled, unsampled = trace_id(), trace_id()
    for trace, flags in ((sampled, "01"), (unsampled, "00")):
        assert ask(caller, [7.5], "square/jvp", **parent(trace, flags)).status_code in (200, 422)
    text = caller.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"}).text
    found = dict[str, set[str]]()
    for family in openmetrics.text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.exemplar is not None and sample.labels["operation"] == "jvp":
                assert sample.exemplar.value <= float(sample.labels["le"])
                found.setdefault(family.name, set()).add(sample.exemplar.labels["trace_id"])
    assert found["pullback_request_duration_seconds"] == {sampled}
    assert not any(unsampled in traces for traces in found.values())
    assert "# {" not in caller.get("/metrics").text


def test_a_service_without_it_imports_nothing_and_logs_the_trace(
    exporting: None, start: Start, tmp_path: Path, collector: Collector
) -> None:
    (tmp_path / "modules.py").write_text(PAGE)
    one = start(LOG="json", OPS_PATH=str(tmp_path)).wait_until_ready()
    with one.client() as caller:
        answer = ask(caller, [7.0], "modules/forward")
        assert "imported 0 modules, spans: False" in answer.text
        for number in range(60):
            trace = trace_id()
            answer = ask(caller, [number, 0.5], **parent(trace))
        assert total(caller, "pullback_express_requests_total") > 0
        name = answer.headers["x-request-id"]
        line = next(json.loads(line) for line in one.log_with(name).splitlines() if name in line)
        assert (line["trace_id"], line["parent_span_id"]) == (trace, "00f067aa0ba902b7")
        text = caller.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"}).text
        assert "# {" not in text
    assert trace not in {span.trace_id for span in collector.spans}


@pytest.mark.slow
def test_each_worker_exports_for_itself(exporting: None, start: Start, collector: Collector) -> None:
    one = start(OTEL="1", WORKERS="2").wait_until_ready()
    asked = [trace_id() for _ in range(24)]
    for trace in asked:
        with one.client() as caller:
            assert ask(caller, [0.75], **parent(trace)).status_code == 200
    one.close()
    servers = [server_of(collector.trace(trace)) for trace in asked]
    assert len({server.resource["service.instance.id"] for server in servers}) == 2


@pytest.mark.slow
def test_a_job_continues_the_trace_of_its_request(collector: Collector, caller: httpx.Client) -> None:
    trace = trace_id()
    answer = ask(caller, [1.5], prefer="respond-async", **parent(trace))
    assert answer.status_code == 202
    job, until = f"/v1/jobs/{answer.json()['id']}", time.monotonic() + PATIENCE_S
    while (state := caller.get(job, params={"wait": 20}).json()["state"]) != "done":
        # Its process comes after all others.
        assert state in ("waiting", "running")
        assert time.monotonic() < until
    posted, run = sorted(
        collector.wait_for(lambda span: span.trace_id == trace and span.kind == SERVER, 2), key=lambda span: span.began
    )
    assert posted.attributes["http.response.status_code"] == 202
    assert (run.parent_id, run.attributes["http.response.status_code"]) == (posted.span_id, 200)
    assert run.attributes["pullback.request.id"] == answer.json()["id"]
    assert posted.resource["service.instance.id"] != run.resource["service.instance.id"]
    # To post it again in another trace is no other request.
    again = {"prefer": "respond-async", "idempotency-key": "the same"}
    ids = [ask(caller, [1.5], **again, **parent(trace_id())).json()["id"] for _ in range(2)]
    assert ids[0] == ids[1]
