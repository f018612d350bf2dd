"""Checks in separate processes: what an op does to its process stays there, and ends in a finding."""

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import Serve, Service, Start
from tests.http.native_client import JSON, post, problem
from tests.patience import PATIENCE_S, PAUSE_S

pytestmark = pytest.mark.slow

LINES = {**JSON, "accept": "application/x-ndjson"}
LIMIT_MB = 1536
# The process of a check, and only that, may do these things: the service loads the file, too.
PAGE = """
import builtins
import ctypes
import os
import sys
import time

import numpy as np
import tensorflow as tf
from ops import Claim, Example, Input, Op, Output

kept = []


def crash(x):
    if x.size % 2:
        ctypes.string_at(0)


def leave(x):
    os._exit(3)


def fill(x):
    kept.append(np.ones({limit} << 17))
    time.sleep(5)


def shut(x):
    os.closerange(3, 100)


def monk(x):
    tf.sigmoid = tf.tanh


def deep(x):
    sys.setrecursionlimit(60)


def count(x):
    builtins.len = lambda x: 0


def leaves(x):
    raise GeneratorExit


def talk(x):
    print(1000 * "talk ")
    os.write(2, b"n" * 1_000_000)


def stop(x):
    ctypes.PyDLL(None).sleep(600)  # without the other threads of the interpreter


def forward(x):
    def computed(a):
        {name}(a)
        return 2 * a

    y = tf.numpy_function(computed, [x], x.dtype)
    y.set_shape(x.shape)
    return y


@tf.custom_gradient
def twice(x):
    return forward(x), lambda dy: 2 * dy


OP = Op(
    name="{name}", summary="", doc=None, function=twice, mechanism="custom_gradient", source="", modes=("graph",),
    inputs=(Input("x", shape=("N",)),), outputs=(Output("y", shape=("N",)),),
    examples=(Example("one", {{"x": [1.0, 2.0]}}),),
)
"""
MANNERS = {
    "shut": "op shut broke the process of the check, which ended with ",
    "monk": "op monk changes tf.sigmoid for all ops; define another name instead",
    "deep": "op deep changes the recursion limit for all ops; define another name instead",
    "count": "op count changes builtins.len for all ops; define another name instead",
    "leaves": "GeneratorExit",
}
OPS = ("crash", "leave", "fill", "talk", "stop", *MANNERS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ops")
    for name in OPS:
        (folder / f"{name}.py").write_text(PAGE.format(name=name, limit=LIMIT_MB))
    return folder


@pytest.fixture(scope="module")
def checking(start_for_module: Start, folder: Path) -> Service:
    settings = {"OPS_PATH": str(folder), "CHECK_PROCESSES": "1", "PROCESS_MEMORY_MB": str(LIMIT_MB)}
    one = start_for_module(**settings).wait_until_ready()
    with one.client() as client:
        assert check(client, "square")["verdict"] == "pass"
    return one


@pytest.fixture
def client(checking: Service) -> Iterator[httpx.Client]:
    with checking.client() as one:
        yield one


def check(client: httpx.Client, op: str, **body: Any) -> dict[str, Any]:
    response = post(client, op, "check", **body)
    assert response.status_code == 200, response.text
    return response.json()


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]


def processes(one: Service) -> list[int]:
    """Return the ids of the processes of checks."""
    return [child for server in children(one.process.pid) for child in children(server)]


def until(condition: Any) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def the_process(one: Service) -> int:
    """Return the id of the only process of checks, once those that end have ended."""
    until(lambda: len(processes(one)) == 1)
    return processes(one)[0]


def untimed(found: dict[str, Any]) -> dict[str, Any]:
    """Return a report without its times; the sentences of check cost are times."""
    entries = [{**entry, "seconds": 0} for entry in found["checks"]]
    for entry in entries:
        entry["sentence"] = "" if entry["check"] == "cost" else entry["sentence"]
    return {**found, "seconds": 0, "checks": entries}


def the(found: dict[str, Any], verdict: str) -> dict[str, Any]:
    (entry,) = (entry for entry in found["checks"] if entry["verdict"] == verdict)
    return entry


def test_a_crash_is_a_finding_and_the_service_lives(checking: Service, client: httpx.Client) -> None:
    found = check(client, "crash", seed=3)
    assert found["verdict"] == "fail"
    crash = the(found, "fail")
    assert crash["sentence"].startswith(
        "op crash crashed the process of the check with SIGSEGV in mode graph at x float64["
    )
    assert crash["reproduce"] == f"pullback check crash --check {crash['check']} --seed 3"
    left = [entry["sentence"] for entry in found["checks"] if entry["verdict"] == "skipped"]
    assert f"not run, because the process of the check ended in check {crash['check']}" in left
    assert found["unfinished"] == 0
    assert "with status 3 in mode graph" in the(check(client, "leave", inputs={"x": [1.0, 2.0]}), "fail")["sentence"]
    assert check(client, "square")["verdict"] == "pass"
    assert checking.process.poll() is None


def test_what_an_op_prints_is_bounded(checking: Service, client: httpx.Client) -> None:
    before = len(checking.log())
    assert check(client, "talk", checks=["contract", "value"])["verdict"] == "pass"
    log = checking.log()[before:]
    assert "talk talk" in log
    assert re.search(r"^pullback: op talk printed \d{7,} bytes more here, which are left out$", log, re.MULTILINE)
    assert len(log) < 100_000


def test_a_killed_process_is_no_fault_of_the_op(checking: Service, client: httpx.Client) -> None:
    body = b'{"ops": ["sign", "square"], "checks": ["contract", "value", "derivative"]}'
    with client.stream("POST", "/v1/checks", content=body, headers=LINES) as response:
        events = map(json.loads, response.iter_lines())
        assert next(event for event in events if event["event"] == "progress")["op"] == "sign"
        pid = the_process(checking)
        os.kill(pid, signal.SIGKILL)
        sign, square = (event["report"] for event in events if event["event"] == "report")
    assert sign["verdict"] == "pass"
    assert checking.log_with("the process of the check of op sign ended with SIGKILL: a new one runs the check again")
    assert square["verdict"] == "pass"


def test_memory_is_bounded(client: httpx.Client) -> None:
    found = the(check(client, "fill"), "error")
    assert f"more than {LIMIT_MB} MiB: raise PULLBACK_PROCESS_MEMORY_MB" in found["sentence"]
    assert check(client, "square", checks=["contract"])["verdict"] == "pass"


@pytest.mark.parametrize("name", MANNERS)
def test_an_op_that_harms_its_process_fails_alone(client: httpx.Client, name: str) -> None:
    found = check(client, name, checks=["contract", "value"])
    assert any(MANNERS[name] in entry["sentence"] for entry in found["checks"] if entry["verdict"] == "fail"), found
    assert check(client, "square", checks=["contract"])["verdict"] == "pass"


def test_a_kernel_that_holds_the_interpreter_ends_at_the_deadline(checking: Service, client: httpx.Client) -> None:
    for deadline_ms in (2000, 8000):  # on a busy machine, the first may pass before the process begins
        response = client.post("/v1/ops/stop/check", json={}, headers={"pullback-deadline-ms": str(deadline_ms)})
        if response.status_code != 504:
            break
    assert response.status_code == 200
    assert response.json()["unfinished"] > 0
    assert check(client, "square", checks=["contract"])["verdict"] == "pass"


def test_a_closed_connection_ends_the_work_at_once(checking: Service, client: httpx.Client) -> None:
    check(client, "square", checks=["contract"])
    with checking.client() as leaving, leaving.stream("POST", "/v1/checks", content=b"{}", headers=LINES) as response:
        assert any("progress" in line for line in response.iter_lines())
        pid = the_process(checking)
    until(lambda: pid not in processes(checking))
    assert check(client, "square", checks=["contract"])["verdict"] == "pass"


def sockets(pid: int) -> set[str]:
    links = (os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir())
    return {link for link in links if link.startswith("socket:")}


def test_a_process_has_no_socket_of_the_service(checking: Service, client: httpx.Client) -> None:
    with client.stream("POST", "/v1/checks", content=b'{"ops": ["square"]}', headers=LINES) as response:
        assert any("progress" in line for line in response.iter_lines())
        pid = the_process(checking)
        assert sockets(checking.process.pid)
        assert not sockets(checking.process.pid) & sockets(pid)
        limits = Path(f"/proc/{pid}/limits").read_text(encoding="ascii")
        assert re.search(r"^Max core file size +0 +0 ", limits, re.MULTILINE)
        assert os.getsid(pid) == os.getpgid(pid) == pid


def test_reports_equal_those_of_the_service_itself(client: httpx.Client, serve: Serve, folder: Path) -> None:
    with serve(OPS_PATH=str(folder)).client() as inside:
        for op, body in (
            ("square", {"seed": 7, "modes": ["graph"], "dtypes": ["float32"]}),
            ("clip_gradient", {"checks": ["derivative", "second", "linearity"], "modes": ["graph"]}),
            (
                "relu",
                {"inputs": {"x": [[0.0, -1.0], [2.0, 3.0]]}, "checks": ["derivative", "finite"], "modes": ["graph"]},
            ),
        ):
            assert json.dumps(untimed(check(client, op, **body))) == json.dumps(untimed(check(inside, op, **body)))
        deep = json.loads(400 * "[" + 400 * "]")
        for body in ({"inputs": {"x": [None]}}, {"attrs": {"k": 1}}, {"inputs": {"x": deep}}, {"attrs": {"k": deep}}):
            assert post(client, "square", "check", **body).json() == post(inside, "square", "check", **body).json()
        body = json.dumps({"ops": ["square", "sign"], "checks": ["contract", "derivative"], "modes": ["graph"]})
        streams = [
            [json.loads(line) for line in one.post("/v1/checks", content=body, headers=LINES).text.splitlines()]
            for one in (client, inside)
        ]
    for events in streams:
        for event in events:
            event.update({"report": untimed(event["report"])} if "report" in event else {})
            event.update({"seconds": 0} if "seconds" in event else {"left_s": 0})
    # How often there is progress depends on the load.
    steps = [[event["done"] for event in events if event["event"] == "progress"] for events in streams]
    assert all(done and done == sorted(done) for done in steps)
    one, other = ([event for event in events if event["event"] != "progress"] for events in streams)
    assert one == other


def test_other_ops_than_those_of_the_service_are_not_checked(
    checking: Service, client: httpx.Client, folder: Path
) -> None:
    (folder / "talk.cache").write_text("as an op may write it")
    assert check(client, "square", checks=["contract"])["verdict"] == "pass"
    page = folder / "talk.py"
    text = page.read_text()
    page.write_text(text + "\n")
    try:
        detail = problem(post(client, "square", "check"), 503)["detail"]
    finally:
        page.write_text(text)
    assert "files have changed since the service read them" in detail
    assert "pullback serve --reload" in detail
    checking.log_with(str(page))
    assert check(client, "square", checks=["contract"])["verdict"] == "pass"


def is_running(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except FileNotFoundError:
        return False


def test_a_stop_ends_a_check_soon_and_cleanly(start: Start) -> None:
    one = start(CHECK_PROCESSES="1", GRACE_S="100").wait_until_ready()
    with one.client() as client, client.stream("POST", "/v1/checks", content=b"{}", headers=LINES) as response:
        lines, seen = response.iter_lines(), list[str]()
        assert any("progress" in line for line in lines if not seen.append(line)), (seen, one.log())
        pids = processes(one)
        one.process.send_signal(signal.SIGTERM)
        *_, last = lines
    assert json.loads(last)["problem"]["status"] == 503
    assert one.wait() == 0
    until = time.monotonic() + PATIENCE_S
    while any(is_running(pid) for pid in pids):  # the kernel takes a moment to end a large process
        assert time.monotonic() < until
        time.sleep(PAUSE_S)
    assert "terminate called" not in one.log()
    assert "Traceback" not in one.log()
