"""/metrics: the numbers add up for one worker and for several, and no client can make it grow."""

import itertools
import os
import platform
import signal
import socket
import time
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from pullback import __version__
from tests.conftest import Service, Start
from tests.http.native_client import OPERATIONS, ask, post, problem
from tests.patience import PATIENCE_S, PAUSE_S
from tests.threaded_service import ThreadedService

BODY = b'{"inputs":{"x":[1,2]}}'
JSON = {"content-type": "application/json"}
HEAD = (
    "POST /v1/ops/square/forward HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    f"expect: 100-continue\r\ncontent-length: {len(BODY)}\r\n\r\n"
).encode()
GROUPS = ("catalogue", "docs")
STAGES = ("parse", "queue", "compute", "serialise")
SCRAPES = 8


class Scrape:
    """The samples of one scrape."""

    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}

    def __call__(self, name: str, **labels: str) -> float:
        """Return the sum of the samples of this name that have these labels."""
        samples = (sample for family in self.families.values() for sample in family.samples if sample.name == name)
        return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())

    def values(self, label: str) -> set[str]:
        """Return all values of a label."""
        samples = (sample for family in self.families.values() for sample in family.samples)
        return {sample.labels[label] for sample in samples if label in sample.labels}


def scrape(client: httpx.Client) -> Scrape:
    response = client.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return Scrape(response.text)


def answers(seen: Scrape, op: str, operation: str) -> dict[str, float]:
    """Return the number of responses by status."""
    samples = seen.families["pullback_requests"].samples
    wanted = {"op": op, "operation": operation}
    return {one.labels["status"]: one.value for one in samples if wanted.items() <= one.labels.items()}


@pytest.fixture(scope="module")
def counting(serve_for_module) -> ThreadedService:
    """A service that only this module sends requests to."""
    return serve_for_module()


@pytest.fixture(scope="module")
def caller(counting):
    with counting.client() as one:
        yield one


def test_requests_are_counted_by_op_operation_and_status(caller: httpx.Client):
    for _ in range(3):
        ask(caller, "square", "vjp", inputs={"x": [1, 2]})
    problem(post(caller, "square", "vjp", inputs={"x": ["one"]}), 422)
    url = "/v1/ops/square/vjp"
    problem(caller.post(url, content=BODY, headers={**JSON, "accept": "image/png"}), 406)
    problem(caller.post(url, content=b"{", headers=JSON), 400)
    problem(caller.get(url), 405)
    problem(post(caller, "square", "verify", inputs={"x": [1]}), 422)
    seen = scrape(caller)
    assert answers(seen, "square", "vjp") == {"200": 3, "400": 1, "405": 1, "406": 1, "422": 1}
    assert answers(seen, "square", "verify") == {"422": 1}
    assert seen("pullback_request_duration_seconds_count", op="square", operation="vjp") == 7
    # Invalid requests are never computed.
    assert seen("pullback_batch_size_sum", op="square", operation="vjp") == 3
    assert seen("pullback_batch_size_bucket", op="square", operation="vjp", le="1.0") == 3


@pytest.mark.parametrize("to", ["square/forward", "softmax_cross_entropy/vjp", "square/hessian", "square/check"])
def test_stage_times_add_up_to_at_most_the_total(caller: httpx.Client, to: str):
    op, operation = to.split("/")
    examples = caller.get(f"/v1/ops/{op}").json()["examples"]
    body = {} if operation == "check" else {"inputs": examples[0]["inputs"], "attrs": examples[0]["attrs"]}
    ask(caller, op, operation, **body)
    seen, labels = scrape(caller), {"op": op, "operation": operation}
    spent = {stage: seen(f"pullback_{stage}_seconds_total", **labels) for stage in STAGES}
    # An evaluation that is known to be brief runs at once, in no queue; a check never does.
    assert all(seconds > 0 for stage, seconds in spent.items() if stage != "queue" or operation == "check"), spent
    assert sum(spent.values()) <= seen("pullback_request_duration_seconds_sum", **labels)


def test_a_stream_of_checks_counts_as_one_request(caller: httpx.Client):
    response = caller.post("/v1/checks", json={"ops": ["square"]})
    assert response.status_code == 200
    seen = scrape(caller)
    assert answers(seen, "", "checks") == {"200": 1}
    assert seen("pullback_compute_seconds_total", op="square", operation="checks") > 0


def test_plans_are_counted(caller: httpx.Client):
    before = scrape(caller)("pullback_plans_kept")
    for scale in (0.25, 0.5, 0.25):
        ask(caller, "scale_gradient", "vjp", inputs={"x": [1]}, attrs={"scale": scale})
    assert scrape(caller)("pullback_plans_kept") == before + 2


def test_unknown_names_make_no_labels(caller: httpx.Client):
    names = ["nothing", "Square", "square%20", "%00", "a" * 5000, "%F0%9F%92%A5", '"}%0Apullback_x 1', "__name__"]
    paths = [f"/v1/ops/{op}/{operation}" for op in names for operation in ("vjp", *names)]
    paths += [f"/v1/ops/square/{name}" for name in names] + [f"/{name}" for name in names]
    before = scrape(caller)
    for path in paths:
        problem(caller.post(path, content=BODY, headers=JSON), 404)
    seen = scrape(caller)
    assert answers(seen, "", "other")["404"] - answers(before, "", "other").get("404", 0) == len(paths)
    assert seen.values("op") == before.values("op") | {""}  # other tests of this service left ops that are gone
    on_none = {"catalogue", "checks", "health", "metrics", "docs", "other"}
    assert seen.values("operation") <= {*OPERATIONS, "numeric", "check", "verify", *on_none}
    assert all(status.isdigit() for status in seen.values("status"))


def test_other_paths_are_grouped(caller: httpx.Client):
    paths = ["/v1/ops", "/v1/ops/square", "/v1/ops/log1pexp", "/health/live", "/health/ready", "/docs"]
    before = scrape(caller)
    for path in paths:
        assert caller.get(path).status_code == 200
    after = scrape(caller)
    grew = {group: answers(after, "", group)["200"] - answers(before, "", group).get("200", 0) for group in GROUPS}
    assert grew == {"catalogue": 3, "docs": 1}


def probes(seen: Scrape) -> dict[tuple[str, str], float]:
    """Return the number of probes by operation and status."""
    samples = seen.families["pullback_probe_requests"].samples
    return {(one.labels["operation"], one.labels["status"]): one.value for one in samples}


PROBES = ("/health/live", "/health/ready", "/v2/health/live", "/v2/health/ready", "/tesseract/square/health")
PROBES += ("/v2/models/square/ready", "/v2/models/square/versions/1/ready")


def test_probes_are_no_requests(caller: httpx.Client):
    """An idle service that is watched has no requests: neither their rates nor their latencies show the watching."""
    before = scrape(caller)
    for path in PROBES:
        for method in ("GET", "HEAD", "DELETE"):
            assert caller.request(method, path).status_code == (405 if method == "DELETE" else 200), path
    after = scrape(caller)
    was, now = probes(before), probes(after)
    assert now["health", "200"] - was.get(("health", "200"), 0) == 2 * len(PROBES)
    assert now["health", "405"] - was.get(("health", "405"), 0) == len(PROBES)
    assert now["metrics", "200"] - was["metrics", "200"] == 1
    for name in ("pullback_requests_total", "pullback_request_duration_seconds_count"):
        assert after(name) == before(name)


def test_the_process_the_build_and_the_ops_have_metrics(caller: httpx.Client):
    seen = scrape(caller)
    assert seen("process_resident_memory_bytes") > 1e8
    assert seen("process_virtual_memory_bytes") > seen("process_resident_memory_bytes")
    assert 0 < seen("process_open_fds") < seen("process_max_fds")
    assert seen("process_cpu_seconds_total") > 0
    assert 0 < time.time() - seen("process_start_time_seconds") < 1e6
    ready = caller.get("/health/ready").json()
    versions = {"version": __version__, "tensorflow": ready["tensorflow"], "python": platform.python_version()}
    [build] = seen.families["pullback_build_info"].samples
    assert len(build.labels["pages"]) == 64
    assert seen("pullback_build_info", **versions) == seen("pullback_build_info") == 1
    assert seen("pullback_ops_served") == ready["ops"]
    assert seen("pullback_ops_unavailable") == 0


def test_ops_that_are_not_served_are_counted(plugged):
    assert scrape(plugged)("pullback_ops_unavailable") == len(plugged.get("/health/ready").json()["unavailable"]) > 0


def test_services_with_other_pages_have_another_digest(caller: httpx.Client, plugged: httpx.Client):
    builds = [scrape(client).families["pullback_build_info"].samples[0].labels for client in (caller, plugged)]
    assert builds[0]["pages"] != builds[1]["pages"]
    assert {**builds[0], "pages": ""} == {**builds[1], "pages": ""}


def test_durations_are_told_apart_up_to_the_limits(caller: httpx.Client):
    """Of a request, a minute by default, and of a stream of checks, ten minutes."""
    ask(caller, "square", "vjp", inputs={"x": [1, 2]})
    found = {float(bound) for bound in scrape(caller).values("le") if bound != "+Inf"}
    for low, high in itertools.pairwise((5, 10, 15, 20, 30, 45, 60, 120, 300, 600)):
        assert {low, high} <= found


def test_requests_in_flight_are_counted(counting: ThreadedService, caller: httpx.Client):
    assert scrape(caller)("pullback_in_flight_requests") == 0  # without the scrape itself
    with socket.create_connection(("127.0.0.1", counting.port), timeout=PATIENCE_S) as sock:
        sock.sendall(HEAD)
        assert sock.recv(100).startswith(b"HTTP/1.1 100 ")
        assert scrape(caller)("pullback_in_flight_requests") == 1
        sock.sendall(BODY)
        assert b"HTTP/1.1 200 " in sock.recv(1000)
    assert scrape(caller)("pullback_in_flight_requests") == 0
    assert scrape(caller).values("queue") == {"lane", "batches"}


def test_trace_counts_match_the_readiness_document(caller: httpx.Client):
    ask(caller, "square", "forward", inputs={"x": [1, 2, 3]}, mode="xla")
    ready, seen = caller.get("/health/ready").json(), scrape(caller)
    assert seen("pullback_traces_total") == ready["traces"] > 0
    assert seen("pullback_xla_compilations_total") == ready["compiled"] > 0


def test_openmetrics_is_sent_if_accepted(caller: httpx.Client):
    response = caller.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert response.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    families = list(openmetrics.text_string_to_metric_families(response.text))
    assert families
    assert all(family.documentation for family in families)


def test_metrics_can_be_disabled(serve):
    with serve(METRICS="0").client() as client:
        ask(client, "square", "forward", inputs={"x": 3})
        problem(client.get("/metrics"), 404)
        assert "/metrics" not in client.get("/openapi.json").json()["paths"]


def folder_of(pid: int) -> Path:
    """Return the folder where a worker stores its counts."""
    files = [Path(os.readlink(file)) for file in Path(f"/proc/{pid}/fd").iterdir()]
    [folder] = {file.parent for file in files if file.suffix == ".db"}
    return folder


def ask_until(one: Service, wanted: int) -> Mapping[str, int]:
    """Send requests on new connections until this many workers have answered; return the responses by worker mark."""
    counts: dict[str, int] = {}
    until = time.monotonic() + PATIENCE_S
    while len(counts) < wanted:
        assert time.monotonic() < until, counts
        with one.client() as client:
            response = client.post("/v1/ops/square/forward", content=BODY, headers=JSON)
        assert response.status_code == 200
        mark = response.headers["x-request-id"].partition("-")[0]
        counts[mark] = counts.get(mark, 0) + 1
        time.sleep(PAUSE_S)
    return counts


def request_total(client: httpx.Client) -> float:
    """Return how many requests of ``ask_until`` a scrape reports."""
    return scrape(client)("pullback_requests_total", op="square", operation="forward")


def wait_for_total(one: Service, total: int) -> None:
    """Wait until several scrapes in a row, each on a new connection to any worker, report this many requests."""
    until, alike = time.monotonic() + PATIENCE_S, 0
    while alike < SCRAPES:
        with one.client() as client:
            found = request_total(client)
        assert found <= total
        assert time.monotonic() < until, (found, total)
        alike = alike + 1 if found == total else 0
        time.sleep(PAUSE_S)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of plug-ins of the two workers."""
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def two(start_for_module: Start, pages: Path) -> Service:
    """A service with two workers, each a new interpreter, for the two tests of them."""
    return start_for_module(WORKERS="2", OPS_PATH=str(pages)).wait_until_ready()


@pytest.mark.slow
def test_workers_report_together_and_keep_the_counts_of_ended_ones(two: Service):
    one, folder = two, folder_of(two.workers()[0])
    total = sum(ask_until(one, 2).values())
    until = time.monotonic() + PATIENCE_S
    with one.client() as client:  # one connection, so one worker: the other gets no requests
        while request_total(client) < total:
            assert time.monotonic() < until
            time.sleep(PAUSE_S)
    wait_for_total(one, total)
    ended, survivor = one.workers()
    os.kill(ended, signal.SIGKILL)
    wait_for_total(one, total)
    until = time.monotonic() + PATIENCE_S
    while len(now := one.workers()) < 2 or ended in now:
        assert time.monotonic() < until
        time.sleep(PAUSE_S)
    assert survivor in now
    total += sum(ask_until(one, 2).values())
    wait_for_total(one, total)
    with one.client() as client:
        assert scrape(client)("pullback_in_flight_requests") == 0
    # A worker continues the files of the worker that it replaces.
    places = {path.stem.rpartition("_")[2] for path in folder.iterdir()}
    assert places == {"0", "1"}


def resident(pids: list[int]) -> float:
    """Return the resident memory of processes, in bytes."""
    pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids]
    return sum(pages) * os.sysconf("SC_PAGESIZE")


def wait_for_memory(one: Service) -> Scrape:
    """Wait until a scrape reports about the memory of the workers that there are."""
    until = time.monotonic() + PATIENCE_S
    while True:
        with one.client() as client:
            seen = scrape(client)
        actual = resident(one.workers())
        if 0.7 * actual < seen("process_resident_memory_bytes") < 1.4 * actual:
            return seen
        assert time.monotonic() < until, (actual, seen("process_resident_memory_bytes"))
        time.sleep(PAUSE_S)


@pytest.mark.slow
def test_processes_are_summed_over_the_workers_that_live(two: Service, pages: Path):
    """A worker that has ended, and is not replaced, uses nothing; its CPU time stays counted. Then the service ends."""
    one, folder = two, folder_of(two.workers()[0])
    both = wait_for_memory(one)
    assert both("pullback_build_info") == 1
    served = both("pullback_ops_served")
    (pages / "changed").touch()
    ended, survivor = one.workers()
    os.kill(ended, signal.SIGKILL)
    one.log_with("is not replaced")
    alone = wait_for_memory(one)
    assert one.workers() == [survivor]
    assert alone("process_cpu_seconds_total") >= both("process_cpu_seconds_total")
    assert alone("process_open_fds") < both("process_open_fds")
    assert alone("pullback_ops_served") == served
    one.process.send_signal(signal.SIGTERM)
    assert one.wait() == 0
    assert not folder.exists()


@pytest.mark.thorough
def test_workers_without_metrics_have_no_folder(start):
    one = start(WORKERS="2", METRICS="0").wait_until_ready()
    with pytest.raises(ValueError, match="not enough values"):
        folder_of(one.workers()[0])
    with one.client() as client:
        problem(client.get("/metrics"), 404)
