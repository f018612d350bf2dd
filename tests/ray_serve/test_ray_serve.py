"""The service as a deployment of Ray Serve: the same bits, replicas by load, and what is lost when one is killed.

Nothing here depends on speed. Figures are printed, and kept in build/fleet/figures.json.
"""

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from benchmarks.processes import free_port
from tests.conftest import ROOT, Service, environment
from tests.fleet.load import HOST, Load
from tests.fleet.members import SETTINGS
from tests.patience import PATIENCE_S

PYTHON = ROOT / "build" / "ray" / "bin" / "python"
ANSWER = "answer: "
CONNECTIONS, SOME, LIMIT_S = 16, 300, 600.0
NO_TOKENS = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
BATCHES = re.compile(r'^pullback_batch_size_(sum|count)\{[^}]*operation="vjp"\} (\S+)$', re.MULTILINE)


class Ray:
    """A process with Ray in it, and its deployment."""

    def __init__(self, process: "subprocess.Popen[str]", port: int, name: str) -> None:
        self._process, self.port, self._name = process, port, name

    def line(self) -> str:
        """Return the next answer, without its beginning; "" at the end."""
        assert self._process.stdout
        for line in self._process.stdout:
            if line.startswith(ANSWER):
                return line.removeprefix(ANSWER).strip()
        return ""

    def do(self, command: str) -> int:
        """Send a command; return how many replicas run then."""
        assert self._process.stdin
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return int(self.line())

    def wait_for(self, replicas: int) -> None:
        self.wait(lambda: self.do("count") == replicas)

    def wait(self, done: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < until
            time.sleep(0.5)

    def pids(self) -> set[int]:
        """Return the processes of the replicas, which Ray names after the application."""
        found = set[int]()
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if path.read_bytes().startswith(f"ray::ServeReplica:{self._name}:".encode()):
                    found.add(int(path.parent.name))
        return found


@pytest.fixture(scope="module")
def ray() -> Iterator[Ray]:
    port, name = free_port(), f"pullback{os.getpid()}"
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [PYTHON, "-m", "tests.ray_serve.host", str(port), name],
            cwd=ROOT,
            env={**environment(), **NO_TOKENS, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        with process:
            one = Ray(process, port, name)
            if one.line() != "ready":
                log.seek(0)
                pytest.fail(log.read().decode()[-4000:])
            yield one


def test_answers_have_the_bits_of_the_service(ray, cases, figures):
    with Load(ray.port, cases, 1, limit_s=LIMIT_S) as load:
        load.wait_for(2 * len(cases))
    assert load.failures == []
    assert load.statuses.keys() == {200}
    figures.record(
        "Ray Serve, c=1", **{"p50 ms": 1e3 * load.percentile_s(0.5), "p99 ms": 1e3 * load.percentile_s(0.99)}
    )


def test_batches_form(ray, cases):
    with Load(ray.port, cases, 4 * CONNECTIONS, limit_s=LIMIT_S) as load:
        load.wait_for(10 * SOME)
    assert load.failures == []
    totals = {"sum": 0.0, "count": 0.0}
    for name, value in BATCHES.findall(httpx.get(f"http://{HOST}:{ray.port}/metrics", timeout=PATIENCE_S).text):
        totals[name] += float(value)
    # Fewer calls than requests.
    assert totals["sum"] > totals["count"] > 0


def test_replicas_follow_the_load_and_are_replaced_without_loss(ray, cases, figures):
    with Load(ray.port, cases, CONNECTIONS, limit_s=LIMIT_S) as load:
        load.wait_for(SOME)
        ray.do("again")
        ray.wait_for(3)
        load.wait_for(SOME)
        ray.do("again")
        load.wait_for(SOME)
    ray.wait_for(1)
    assert load.failures == []
    assert load.statuses.keys() == {200}
    figures.record("Ray Serve, two deployments under load, 1 to 3 replicas and back", answers=load.answered, failures=0)


def test_a_killed_replica_loses_only_what_it_had_begun(ray, cases, figures):
    with Load(ray.port, cases, CONNECTIONS, limit_s=LIMIT_S) as load:
        load.wait_for(SOME)
        ray.wait_for(3)
        before = ray.pids()
        os.kill(killed := min(before), signal.SIGKILL)
        ray.wait(lambda: killed not in ray.pids() and len(ray.pids()) == len(before))
        load.wait_for(SOME)
    # Ray answers 500 for the requests that the replica had begun: at most all that there were.
    assert len(load.failures) <= CONNECTIONS
    assert all(failure.startswith("500 ") for failure in load.failures), load.failures
    figures.record(
        "Ray Serve, kill -9 of one of three replicas, c=16", answers=load.answered, failures=len(load.failures)
    )


def test_figures_next_to_the_server_alone(ray, cases, figures):
    small = [min(cases, key=lambda case: len(case.request))]
    ray.wait_for(1)
    with tempfile.TemporaryFile() as log:
        one = Service.forked(log, **SETTINGS).wait_until_ready()
        try:
            for connections in (1, CONNECTIONS):
                found = dict[str, float]()
                for name, port in (("alone", one.port), ("Ray Serve", ray.port)):
                    with Load(port, small, connections, limit_s=LIMIT_S) as load:
                        load.wait_for(4 * SOME)
                    assert load.failures == []
                    found |= {
                        f"{name} p50 ms": 1e3 * load.percentile_s(0.5),
                        f"{name} a second": load.answered / load.seconds,
                    }
                figures.record(f"one request many times, c={connections}", **found)
        finally:
            one.close()
