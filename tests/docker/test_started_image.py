"""The CPU image as Compose starts it: it answers, within its limits, and stops. `make image-check` builds it first."""

import re
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import yaml

from tests.conftest import ROOT
from tests.docker.deployment import COMPOSE_FILE, Deployment
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.docker

TEXT_LINE = re.compile(r"\S+Z (GET|POST) \S+ \d{3} [\d.]+ms in=\d+ out=\d+ client=\S+ id=\S+")


def test_the_container_has_least_privileges(deployment: Deployment):
    assert deployment.run("id", "-u").stdout == "10001\n"
    status = dict(line.split(":\t", 1) for line in deployment.run("cat", "/proc/1/status").stdout.splitlines())
    assert {int(status[f"Cap{which}"], 16) for which in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {0}
    assert status["NoNewPrivs"].strip() == "1"
    for path in ("/pullback/app/x", "/ops-extra/x", "/etc/x"):
        assert "Read-only file system" in deployment.run("touch", path).stderr
    assert deployment.run("touch", "/tmp/x").returncode == 0
    bound = deployment.inspect()["HostConfig"]
    limits = yaml.safe_load(COMPOSE_FILE.read_text())["services"]["pullback"]
    assert bound["Memory"] == int(limits["mem_limit"].removesuffix("g")) << 30
    assert bound["PidsLimit"] == limits["pids_limit"]
    [address] = {port["HostIp"] for ports in bound["PortBindings"].values() for port in ports}
    assert address == "127.0.0.1"


@pytest.mark.parametrize(("op", "expected"), [("square", [2, -8]), ("relu", [1, 0])])
def test_a_tensor_is_answered(deployment: Deployment, op, expected):
    """By an op in Python and by one in C++."""
    body = {"inputs": {"x": [1, -4]}, "cotangents": {"y": [1, 1]}}
    with deployment.client() as client:
        response = client.post(f"/v1/ops/{op}/vjp", json=body)
    assert response.status_code == 200, response.text
    assert response.json()["gradients"]["x"]["data"] == expected


def test_built_in_and_plug_in_ops_are_available(deployment: Deployment):
    with deployment.client() as client:
        ready = client.get("/health/ready").json()
        machine = {part["name"]: part["found"] for part in ready["machine"]}
        result = client.post("/v1/ops/squares/forward", json={"inputs": {"x": 3, "z": 4}}).json()
    assert ready["unavailable"] == []
    assert machine["native ops"] == ", ".join(sorted(path.stem for path in (ROOT / "ops").glob("*.cc")))
    assert result["outputs"]["y"]["data"] == 144


def test_the_doctor_runs(deployment: Deployment):
    done = deployment.run("pullback", "doctor")
    assert done.returncode == 0, done.stdout
    assert "native ops" in done.stdout


def test_the_log_has_a_line_for_each_request(deployment: Deployment):
    with deployment.client() as client:
        client.get("/v1/ops/square", headers={"x-request-id": "the-one"})
    found, until = list[str](), time.monotonic() + PATIENCE_S
    # The engine reads what the service writes later than the client its answer.
    while not found and time.monotonic() < until:
        found = [line for line in deployment.log().splitlines() if line.endswith("id=the-one")]
    [line] = found
    assert TEXT_LINE.fullmatch(line)


def test_a_stop_completes_requests_in_flight(deployment: Deployment):
    with deployment.client() as client:
        client.post("/v1/ops/sleepy/forward", json={"inputs": {"x": 0}})

    def wait(_: int) -> httpx.Response:
        with deployment.client() as client:
            return client.post("/v1/ops/sleepy/forward", json={"inputs": {"x": 1}})

    with ThreadPoolExecutor(6) as pool:
        pending = [pool.submit(wait, i) for i in range(6)]
        time.sleep(0.5)
        start = time.monotonic()
        deployment.compose("stop", "pullback")
        seconds = time.monotonic() - start
        responses = [future.result() for future in pending]
    assert [response.status_code for response in responses] == [200] * 6
    assert seconds < 35
    assert deployment.inspect()["State"]["ExitCode"] == 0
    assert "draining" in deployment.log()
