"""A stuck process exits and is replaced; a process that is only late keeps running."""

import json
import time
from pathlib import Path

import httpx
import pytest

from app.execution.scheduler import Overrun, Scheduler
from app.execution.watchdog import IDLE_S, LONGEST_TRACE_S, STUCK, Watch
from tests.http.conftest import PLUGINS
from tests.http.native_client import JSON, ask, post, problem
from tests.http.test_launcher import SQUARE, own_lines, status_of
from tests.patience import PATIENCE_S, PAUSE_S

REQUEST = json.dumps({"inputs": {"x": [1, 2]}})


@pytest.fixture
def sleepy(tmp_path: Path) -> str:
    """A folder with the op that sleeps."""
    (tmp_path / "sleepy.py").write_text((PLUGINS / "sleepy.py").read_text(encoding="ascii"), encoding="ascii")
    return str(tmp_path)


@pytest.fixture
def slow_to_trace(tmp_path: Path) -> str:
    """A folder with an op whose trace takes five seconds of CPU."""
    text = (PLUGINS / "sleepy.py").read_text(encoding="ascii").replace('"sleepy"', '"slow_to_trace"')
    busy = "    began = time.thread_time()\n    while time.thread_time() < began + 5:\n        pass\n"
    forward = '    """y = x, later."""\n'
    assert forward in text
    (tmp_path / "slow_to_trace.py").write_text(text.replace(forward, forward + busy), encoding="ascii")
    return str(tmp_path)


def sleep(one, seconds: float) -> httpx.Response:
    with one.client() as client:
        return client.post("/v1/ops/sleepy/forward", content=json.dumps({"inputs": {"x": seconds}}), headers=JSON)


def critical(one) -> list[str]:
    return [line for line in own_lines(one) if " CRITICAL " in line]


@pytest.mark.slow
def test_a_stuck_process_exits_with_a_line_and_a_status(start, sleepy: str):
    one = start(OPS_PATH=sleepy, DEADLINE_S="1", GRACE_S="6").wait_until_ready()
    began = time.monotonic()
    problem(sleep(one, 300), 504)
    assert status_of(one) == 200
    while status_of(one) == 200:
        assert time.monotonic() < began + PATIENCE_S
        time.sleep(PAUSE_S)
    with one.client() as client:
        assert "op sleepy" in problem(client.get("/health/ready"), 503)["detail"]
        assert client.get("/health/live").status_code == 200
    assert one.wait() == STUCK
    # Twice its deadline, plus the grace period.
    assert time.monotonic() - began > 1 + 1 + 6
    [line] = critical(one)
    assert "op sleepy is stuck, " in line


@pytest.mark.slow
def test_a_late_process_keeps_running(start, sleepy: str):
    one = start(OPS_PATH=sleepy, DEADLINE_S="1", GRACE_S="3").wait_until_ready()
    problem(sleep(one, 4), 504)
    problem(sleep(one, 2), 504)
    time.sleep(6)
    with one.client() as client:
        assert ask(client, "sleepy", "forward", inputs={"x": 0.01})
        assert client.get("/health/ready").status_code == 200
    assert critical(one) == []


@pytest.mark.thorough
def test_a_stuck_worker_is_replaced_while_another_takes_over(start, sleepy: str):
    one = start(OPS_PATH=sleepy, DEADLINE_S="1", GRACE_S="1", WORKERS="2").wait_until_ready()
    before, until = set(one.workers()), time.monotonic() + PATIENCE_S
    # Both have traced the op, which may take longer than the deadline.
    while not all(is_answered(one) for _ in range(20)):
        assert time.monotonic() < until, one.log()
    problem(sleep(one, 300), 504)
    answers, until = 0, time.monotonic() + PATIENCE_S
    while len(now := set(one.workers())) < 2 or now == before:
        assert time.monotonic() < until, one.log()
        answers += is_answered(one)
        time.sleep(PAUSE_S)
    assert len(before & now) == 1
    assert answers > 0
    assert len(critical(one)) == 1
    while not all(is_answered(one) for _ in range(20)):
        assert time.monotonic() < until, one.log()
    assert one.process.poll() is None


def is_answered(one) -> bool:
    """Request a square from any worker; return whether it was answered."""
    try:
        with one.client() as client:
            return client.post(SQUARE, content=REQUEST, headers=JSON).is_success
    except httpx.TransportError:  # the worker has exited meanwhile
        return False


@pytest.mark.slow
def test_a_slow_trace_is_not_stuck_and_serves_later_requests(start, slow_to_trace: str):
    one = start(OPS_PATH=slow_to_trace, DEADLINE_S="1", GRACE_S="1").wait_until_ready()
    until = time.monotonic() + PATIENCE_S
    with one.client() as client:
        assert problem(post(client, "slow_to_trace", "forward", inputs={"x": 0.0}, mode="graph"), 504)
        while (answer := post(client, "slow_to_trace", "forward", inputs={"x": 0.0}, mode="graph")).status_code != 200:
            # The trace of the first request goes on, and nobody waits for it.
            assert "op slow_to_trace is still traced" in problem(answer, 503)["detail"]
            assert answer.headers["retry-after"] == "5"
            assert client.get("/health/ready").status_code == 200
            assert time.monotonic() < until, one.log()
            time.sleep(PAUSE_S)
    assert critical(one) == []


NOW, PATIENCE = 1000.0, 10.0


@pytest.mark.parametrize(
    ("late_s", "is_tracing", "cpu_s", "is_stuck"),
    [
        (9.0, False, (0.0, 0.0), False),
        (11.0, False, (0.0, 50.0), True),
        (300.0, True, (0.0, 50.0), False),
        (300.0, True, (7.0, 7.0), True),
        # The thread has been idle since earlier work.
        (5.0, True, (7.0, 7.0), False),
        (LONGEST_TRACE_S + 1, True, (0.0, 50.0), True),
    ],
)
def test_a_trace_is_stuck_only_without_progress(
    late_s: float, is_tracing: bool, cpu_s: tuple[float, float], is_stuck: bool
):
    watch = Watch(Scheduler(1), PATIENCE)
    before, now = (Overrun(late_s, "op", "compile", 1, used, is_tracing) for used in cpu_s)
    watch.is_stuck(before, NOW - IDLE_S - 1)
    assert watch.is_stuck(now, NOW) == is_stuck


def test_only_work_that_is_stuck_twice_in_a_row_ends_the_process():
    watch, stuck = Watch(Scheduler(1), PATIENCE), Overrun(PATIENCE + 1, "op", "short", 1, 0.0, False)
    looks = [watch.look(found, NOW) for found in ([stuck], [], [stuck], [stuck])]
    assert looks == [None, None, None, stuck]
