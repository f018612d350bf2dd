"""Jobs: requests with ``Prefer: respond-async``, over the end of their processes and of the service."""

import hashlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from pullback.keys import line_for
from tests.http.native_client import BINARY, JSON, problem
from tests.http.test_keys import bearer
from tests.patience import PATIENCE_S, PAUSE_S

pytestmark = pytest.mark.slow

ASYNC = {"prefer": "respond-async"}
VJP = "/v1/ops/square/vjp"
BODY = {"inputs": {"x": [1.0, 2.0]}, "cotangents": {"y": [1.0, 1.0]}}
LONG = {"inputs": {"x": [1.0], "steps": 1 << 30}}
SLEEPY = "/v1/ops/sleepy/forward"
CRASHING = Path(__file__).parents[1] / "fleet"


@pytest.fixture(scope="module")
def jobs(start_for_session: Any, plugin_folders: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A client of a service with jobs, in a folder that it did not make, and with an op that crashes."""
    path = tmp_path_factory.mktemp("jobs")
    folders = os.pathsep.join((plugin_folders, str(CRASHING)))
    service = start_for_session(OPS_PATH=folders, DATA=str(path), PROCESS_MEMORY_MB="8192").wait_until_ready()
    with service.client() as client:
        yield client


def deferred(client: httpx.Client, path: str, body: Any, **headers: str) -> str:
    """Post a request as a job, and return the path of the job."""
    content = body if isinstance(body, bytes) else json.dumps(body)
    response = client.post(path, content=content, headers={**JSON, **ASYNC, **headers})
    assert response.status_code == 202, response.text
    assert response.headers["preference-applied"] == "respond-async"
    state = response.json()
    assert state["state"] in ("waiting", "running")
    assert response.headers["location"] == f"/v1/jobs/{state['id']}"
    assert state["id"].startswith(f"{response.headers['pullback-replica']}-")
    return response.headers["location"]


def waited(client: httpx.Client, path: str) -> dict[str, Any]:
    """Return the state of a job that has ended."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        state = client.get(f"{path}?wait=30").raise_for_status().json()
        if state["state"] not in ("waiting", "running"):
            return state
    raise AssertionError(state)


def until_it_runs(client: httpx.Client, path: str) -> None:
    wait_for(lambda: client.get(path).json()["state"] == "running")


def wait_for(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < until
        time.sleep(PAUSE_S)


def cpu_of_descendants(pid: int) -> dict[int, int]:
    """Return the CPU time of the processes that a process has started, by their ids, in clock ticks."""
    found = dict[int, int]()
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split():
        try:
            fields = Path(f"/proc/{child}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
            found |= {int(child): int(fields[11]) + int(fields[12])} | cpu_of_descendants(int(child))
        except OSError:
            continue
    return found


TENSOR = {"name": "x", "shape": [2], "datatype": "FP64", "data": [1.0, 2.0]}
REQUESTS = {
    "native": (VJP, BODY, {}),
    "binary answer": (VJP, BODY, {"accept": BINARY}),
    "digits": (VJP, BODY | {"digits": True}, {}),
    "invalid": (VJP, {"inputs": {"x": ["a"]}}, {}),
    "checks": ("/v1/checks", {"ops": ["square"], "checks": ["contract"]}, {"accept": "application/x-ndjson"}),
    "UM-Bridge": ("/Evaluate", {"name": "square", "input": [[1.0, 2.0]], "config": {}}, {}),
    "Tesseract": ("/tesseract/square/apply", {"inputs": {"x": [3.0]}}, {}),
    "OpenInference": ("/v2/models/square/infer", {"id": "a", "inputs": [TENSOR]}, {}),
}


def test_the_answer_is_that_of_the_request(jobs: httpx.Client):
    paths = {name: deferred(jobs, path, body, **headers) for name, (path, body, headers) in REQUESTS.items()}
    for name, (path, body, headers) in REQUESTS.items():
        content = body if isinstance(body, bytes) else json.dumps(body)
        expected = jobs.post(path, content=content, headers={**JSON, **headers})
        state = waited(jobs, paths[name])
        assert state["state"] == ("done" if expected.is_success else "failed"), (name, state)
        assert ("error" in state) == expected.is_error
        answer = jobs.get(f"{paths[name]}/result")
        assert answer.status_code == expected.status_code
        assert answer.headers["content-type"] == expected.headers["content-type"]
        if name == "checks":  # with measured times
            assert b"pass" in answer.content
        else:
            assert answer.content == expected.content, name


def test_a_job_knows_the_sparsity_that_a_request_has_found(jobs: httpx.Client) -> None:
    at = {"inputs": {"x": [0.5, -1.0, 2.0, 3.0, 1.0], "a": 0.25, "k": 1}, "sparse": "coo"}
    path = "/v1/ops/stencil/jacobian"
    found = jobs.post(path, json=at).json()
    job = deferred(jobs, path, {**at, "sparsity": found["sparsity"]})
    assert waited(jobs, job)["state"] == "done"
    assert jobs.get(f"{job}/result").json() == found


def test_several_jobs_are_polled_at_once(jobs: httpx.Client):
    paths = [deferred(jobs, SLEEPY, {"inputs": {"x": seconds}}) for seconds in (0.01, 60.0)]
    names = [path.rpartition("/")[2] for path in paths]
    problem(jobs.get(f"{paths[1]}/result"), 409)
    query = "&".join(f"id={name}" for name in names)
    states = jobs.get(f"/v1/jobs?{query}&wait=50").json()["jobs"]
    assert [state["id"] for state in states] == names
    assert [state["state"] for state in states] == ["done", "running"]
    listed = [state["id"] for state in jobs.get("/v1/jobs").json()["jobs"]]
    assert listed[:2] == names[::-1]
    assert jobs.delete(paths[1]).status_code == 204
    assert waited(jobs, paths[1])["state"] == "cancelled"
    problem(jobs.get(f"{paths[1]}/result"), 410)
    assert jobs.delete(paths[0]).status_code == 204
    problem(jobs.get(paths[0]), 410)
    unknown = f"/v1/jobs/{names[0][:-1]}{'0' if names[0][-1] != '0' else '1'}"
    for method, path in (("GET", unknown), ("DELETE", unknown), ("GET", f"{unknown}/result"), ("GET", "/v1/jobs/none")):
        problem(jobs.request(method, path), 404)
    problem(jobs.get(f"{paths[0]}?wait=x"), 422)
    problem(jobs.post(paths[0]), 405)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (SLEEPY, {"inputs": {"x": [*[0.01] * 150, 60.0]}, "points": True}),
        ("/v1/ops/square/check", {"modes": ["graph"]}),
    ],
    ids=["points", "checks"],
)
def test_the_state_of_a_job_says_how_far_it_has_come(jobs: httpx.Client, path: str, body: dict[str, Any]):
    job = deferred(jobs, path, body)

    def progress() -> dict[str, int]:
        return jobs.get(job).json().get("progress") or {"done": 0, "total": 0}

    wait_for(lambda: 0 < progress()["done"] < progress()["total"])
    problem(jobs.get(f"{job}/result"), 409)
    assert jobs.delete(job).status_code == 204
    assert "progress" not in waited(jobs, job)


def test_a_cancelled_job_computes_no_more(jobs: httpx.Client, start: Any, plugin_folders: str):
    service = start(OPS_PATH=plugin_folders, JOBS="1").wait_until_ready()
    with service.client() as client:
        paths = [deferred(client, "/v1/ops/endless/forward", LONG) for _ in range(2)]
        until_it_runs(client, paths[0])
        assert client.get(paths[1]).json()["position"] == 1
        before = cpu_of_descendants(service.process.pid)
        wait_for(lambda: sum(cpu_of_descendants(service.process.pid).values()) > sum(before.values()) + 50)
        after = cpu_of_descendants(service.process.pid)
        busy = max(after, key=lambda pid: after[pid] - before.get(pid, 0))  # a job runs before its process is there
        assert client.delete(paths[0]).status_code == 204
        wait_for(lambda: not Path(f"/proc/{busy}").exists())
        until_it_runs(client, paths[1])
        assert client.delete(paths[1]).status_code == 204
        done = deferred(client, VJP, BODY)
        assert waited(client, done)["state"] == "done"
        assert "pullback_jobs_ended_total 1.0" in client.get("/metrics").text


def test_a_crash_ends_only_the_job(jobs: httpx.Client):
    body = {"inputs": {"x": 1.0}, "attrs": {"crash": True}}
    crashed, after = deferred(jobs, "/v1/ops/crashing/forward", body), deferred(jobs, VJP, BODY)
    state = waited(jobs, crashed)
    assert state["state"] == "failed"
    assert "its process ended with SIGSEGV" in state["error"]
    assert "in each of its 2 runs" in state["error"]
    assert state["error"] in problem(jobs.get(f"{crashed}/result"), 500)["detail"]
    assert waited(jobs, after)["state"] == "done"


def test_an_idempotency_key_finds_the_job_again(jobs: httpx.Client):
    paths = {deferred(jobs, VJP, BODY, **{"idempotency-key": "k1"}) for _ in range(3)}
    assert len(paths) == 1
    headers = {**JSON, **ASYNC, "idempotency-key": "k1"}
    waited(jobs, paths.pop())
    again = jobs.post(VJP, content=json.dumps(BODY), headers=headers)
    assert (again.status_code, again.json()["state"]) == (202, "done")
    entry = problem(jobs.post(VJP, content=json.dumps({"inputs": {"x": [1.0]}}), headers=headers), 422)["errors"][0]
    assert entry["loc"] == ["header", "Idempotency-Key"]
    problem(jobs.post(VJP, content="{}", headers={**headers, "idempotency-key": "k" * 256}), 422)


def test_what_needs_no_job_is_answered_at_once(jobs: httpx.Client):
    def status(path: str, body: Any, prefer: str) -> int:
        return jobs.post(path, content=json.dumps(body), headers={**JSON, "prefer": prefer}).status_code

    assert status(VJP, BODY, "return=minimal") == 200
    assert status(VJP, BODY, "wait=5, Respond-Async; x=1") == 202
    assert status("/v1/ops/square/linearize", {"inputs": {"x": [1.0]}}, "respond-async") == 200
    assert status("/v1/ops/none/vjp", BODY, "respond-async") == 404
    assert jobs.get("/v1/ops", headers=ASYNC).status_code == 200


def test_without_jobs_each_request_is_answered_at_once(start: Any):
    with start(JOBS="0").wait_until_ready().client() as client:
        assert client.post(VJP, content=json.dumps(BODY), headers={**JSON, **ASYNC}).status_code == 200
        problem(client.get("/v1/jobs"), 404)


def test_keys_own_their_jobs_and_are_bounded(start: Any, tmp_path: Path):
    keys = {"one": "key-of-one", "two": "key-of-two"}
    lines = [f"{name}:{hashlib.sha256(key.encode()).hexdigest()}\n" for name, key in keys.items()]
    (tmp_path / "keys").write_text("".join(lines))
    settings = {"KEYS_FILE": str(tmp_path / "keys"), "KEY_JOBS": "20", "JOB_S": "2", "KEY_INFLIGHT": "1000"}
    service = start(OPS_PATH=str(Path(__file__).parent / "plugins"), JOBS="1", **settings).wait_until_ready()
    one, two = ({"authorization": f"Bearer {key}"} for key in keys.values())
    with service.client() as client, ThreadPoolExecutor(8) as threads:
        first = deferred(client, "/v1/ops/endless/forward", LONG, **one)

        def post(_: int) -> int:
            return client.post(VJP, content=json.dumps(BODY), headers={**JSON, **ASYNC, **one}).status_code

        statuses = [*threads.map(post, range(60))]
        assert set(statuses) == {202, 429}
        assert statuses.count(202) == 19
        refused = client.post(VJP, content=json.dumps(BODY), headers={**JSON, **ASYNC, **one})
        assert "PULLBACK_KEY_JOBS" in problem(refused, 429)["detail"]
        second = deferred(client, VJP, BODY, **two)
        for method in ("GET", "DELETE"):
            problem(client.request(method, second, headers=one), 404)
        problem(client.get(f"{second}/result", headers=one), 404)
        client.headers = one
        state = waited(client, first)  # it took longer than PULLBACK_JOB_S
        assert state["state"] == "failed"
        assert len(client.get("/v1/jobs").json()["jobs"]) == 20
        for job in client.get("/v1/jobs").json()["jobs"]:
            assert waited(client, f"/v1/jobs/{job['id']}")["state"] in ("done", "failed")


def test_a_long_job_gives_way_to_another_key(start: Any, tmp_path: Path):
    names = {"one": "key-of-one-00", "two": "key-of-two-00"}
    (tmp_path / "keys").write_text("".join(f"{line_for(name, key)}\n" for name, key in names.items()))
    one, two = map(bearer, names.values())
    folder = str(Path(__file__).parent / "plugins")
    service = start(WORKERS="2", JOBS="2", KEYS_FILE=str(tmp_path / "keys"), OPS_PATH=folder).wait_until_ready()
    with service.client() as client:
        long = [deferred(client, "/v1/ops/endless/forward", LONG, **one) for _ in range(2)]

        def states() -> list[str]:
            return [client.get(path, headers=one).json()["state"] for path in long]

        wait_for(lambda: states() == ["running", "running"])
        short = deferred(client, VJP, BODY, **two)
        wait_for(lambda: states() == ["running", "waiting"])
        client.headers = two
        assert waited(client, short)["state"] == "done"
        wait_for(lambda: states() == ["running", "running"])
    service.process.terminate()
    assert service.wait() == 0


@pytest.mark.parametrize("workers", ["1", "2"])
def test_jobs_survive_the_end_of_the_service(start: Any, tmp_path: Path, workers: str):
    settings = {"DATA": str(tmp_path / "data"), "WORKERS": workers, "DRAIN_S": "0"}
    settings["OPS_PATH"] = str(Path(__file__).parent / "plugins")
    service = start(**settings).wait_until_ready()
    with service.client() as client, ThreadPoolExecutor(4) as threads:
        long = deferred(client, "/v1/ops/endless/forward", LONG)
        until_it_runs(client, long)
        bodies = [{"inputs": {"x": [float(i)]}} for i in range(100)]
        keyed = [
            threads.submit(deferred, client, VJP, body, **{"idempotency-key": f"k{i}"}) for i, body in enumerate(bodies)
        ]
        paths = [each.result() for each in keyed]
        assert waited(client, paths[0])["state"] == "done"
    pids = [service.process.pid, *service.workers()]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    service.wait()
    service = start(**settings).wait_until_ready()
    with service.client() as client:
        assert deferred_again(client, bodies[-1], "k99") == paths[-1]
        client.delete(long).raise_for_status()
        for i, path in enumerate(paths):
            assert waited(client, path)["state"] == "done"
            assert client.get(f"{path}/result").json()["gradients"]["x"]["data"] == [2.0 * i]
        long = deferred(client, "/v1/ops/endless/forward", LONG)
        until_it_runs(client, long)
    service.process.terminate()
    assert service.wait() == 0
    with start(**settings).wait_until_ready().client() as client:
        assert client.get(long).json()["state"] in ("waiting", "running")
        assert client.get(f"{paths[0]}/result").status_code == 200


def deferred_again(client: httpx.Client, body: Any, key: str) -> str:
    headers = {**JSON, **ASYNC, "idempotency-key": key}
    return client.post(VJP, content=json.dumps(body), headers=headers).raise_for_status().headers["location"]
