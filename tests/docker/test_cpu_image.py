"""The CPU image as operators run it: its size, its contents and robustness. `make docker-test` builds it first."""

import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

import pullback
from tests.conftest import ROOT
from tests.docker.deployment import CPU, Deployment, call, docker

pytestmark = pytest.mark.docker

MIB = 1 << 20
LARGEST = 1_600_000_000


def square(client: httpx.Client, x: float) -> httpx.Response:
    return client.post("/v1/ops/square/forward", json={"inputs": {"x": x}})


def test_the_image_is_small_and_labelled():
    [image] = json.loads(docker("image", "inspect", CPU))
    assert image["Size"] < LARGEST
    labels = {name.rpartition(".")[2]: value for name, value in image["Config"]["Labels"].items()}
    assert labels["title"] == "Pullback"
    assert labels["version"] == pullback.__version__
    assert {"description", "licenses", "revision"} <= set(labels)


def test_the_image_has_only_what_the_service_needs(deployment: Deployment):
    for program in ("g++", "make", "uv"):
        assert deployment.run("sh", "-c", f"command -v {program}").returncode != 0
    assert deployment.run("python", "-m", "pip").returncode == 1
    assert set(deployment.run("ls", "-A", "/pullback").stdout.split()) == {".venv", "app", "build", "ops", "pullback"}
    assert deployment.run("find", "/pullback/app", "/pullback/ops", "-name", "__pycache__").stdout == ""


def test_too_large_a_request_is_refused_and_the_container_survives(deployment: Deployment):
    with deployment.client() as client:
        too_long = client.post(
            "/v1/ops/square/forward",
            content=b'{"inputs": {"x": [' + b"1," * (17 * MIB) + b"1]}}",
            headers={"content-type": "application/json"},
        )
        assert (too_long.status_code, too_long.headers["content-type"]) == (413, "application/problem+json")
        too_wide = client.post("/v1/ops/square/jacobian", json={"inputs": {"x": [1.0] * 4096}})
        assert too_wide.status_code == 422
        assert square(client, 3).json()["outputs"]["y"]["data"] == 9
    state = deployment.inspect()
    assert (state["State"]["OOMKilled"], state["RestartCount"]) == (False, 0)


def test_the_largest_bodies_fit_in_memory(deployment: Deployment):
    """Send JSON bodies near the limit from four clients at once."""
    body = b'{"inputs": {"x": [' + b"1.5," * (7 * MIB) + b"1]}}"

    def post(_: int) -> int:
        with deployment.client() as client:
            headers = {"content-type": "application/json", "accept-encoding": "identity"}
            return client.post("/v1/ops/square/forward", content=body, headers=headers).status_code

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(post, range(4))) <= {200, 503}
    state = deployment.inspect()
    assert (state["State"]["OOMKilled"], state["RestartCount"]) == (False, 0)


def test_the_log_can_be_json():
    hardened = ["--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL"]
    name = docker(
        "run", "--detach", *hardened, "--env", "PULLBACK_LOG=json", "--env", "PULLBACK_DRAIN_S=0", CPU
    ).strip()
    try:
        request = "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/v1/ops').read()"
        for _ in range(100):
            if call("docker", "exec", name, "python", "-S", "-c", request).returncode == 0:
                break
            time.sleep(0.3)
        docker("stop", "--time", "30", name)
        log = call("docker", "logs", name).stderr.splitlines()
        lines = [json.loads(line) for line in log]
        assert [line["path"] for line in lines if line.get("method") == "GET"] == ["/v1/ops"]
        assert json.loads(docker("inspect", name))[0]["State"]["ExitCode"] == 0
    finally:
        docker("rm", "--force", name)


def test_the_integration_tests_pass_against_a_fresh_clone(fresh: Deployment):
    tests = ["tests/http", "tests/client"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PULLBACK_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *tests, "--url", fresh.url, "-m", "not docker", "-rf"],
        cwd=ROOT,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-8000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed
    assert int(passed[1]) > 700


def test_every_gradient_is_right_in_a_fresh_clone(fresh: Deployment):
    done = call(sys.executable, "-m", "pullback", "check", "--url", fresh.url, cwd=str(ROOT))
    assert done.returncode == 0, done.stdout + done.stderr
    ops = len(list((ROOT / "ops").glob("[!_]*.py")))
    assert f" 0 failed, 0 inconclusive of {ops} ops" in done.stdout


def test_the_service_restarts_after_a_kill(deployment: Deployment):
    """Kill it from the host, like the kernel's out-of-memory killer; Docker would treat its own kill as a stop."""
    before = deployment.inspect()
    kill = f"import os; os.kill({before['State']['Pid']}, 9)"
    docker("run", "--rm", "--pid", "host", "--user", "0", "--network", "none", CPU, "python", "-S", "-c", kill)
    end = time.monotonic() + 30
    while deployment.inspect()["RestartCount"] == before["RestartCount"]:
        assert time.monotonic() < end
        time.sleep(0.2)
    deployment.wait_until_healthy()
    with deployment.client() as client:
        assert square(client, 3).json()["outputs"]["y"]["data"] == 9
