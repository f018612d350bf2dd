"""A stuck process exits and is replaced; a process that is only late keeps running."""

import json
import time
from pathlib import Path

import httpx
import pytest

from app.execution.scheduler import Scheduler
from app.execution.tickets import Overrun
from app.execution.watchdog import STUCK, Watch
from app.telemetry.accounts import Owner
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


@pytest.fixture
def waiting(tmp_path: Path) -> str:
    """A folder with two ops whose traces do not end; one is elementwise, so its default mode needs a trace."""
    text = (PLUGINS / "sleepy.py").read_text(encoding="ascii")
    changes = {
        '    """y = x, later."""\n': "    if not tf.executing_eagerly():\n        time.sleep(10000)\n    return x\n",
        "shape=(), differentiable=False": "shape=()",
        "shape=()": 'shape=("...",)',
        'mechanism="symbolic_gradient"': 'mechanism="composition"',
        '{"x": 0.01}': '{"x": [0.5]}',
    }
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    for name, batching in (("waits", ""), ("elementwise", ', batching="elementwise"')):
        page = text.replace('"sleepy"', f'"{name}"').replace('"composition"', f'"composition"{batching}')
        (tmp_path / f"{name}.py").write_text(page, encoding="ascii")
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


@pytest.mark.slow
def test_traces_that_wait_neither_end_the_process_nor_hold_others(start, waiting: str):
    """Neither that of a request, nor that of the comparison that chooses the default mode."""
    one = start(OPS_PATH=waiting, DEADLINE_S="1", GRACE_S="1").wait_until_ready()
    until = time.monotonic() + PATIENCE_S
    with one.client() as client:

        def answer(op: str, mode: str) -> httpx.Response:
            return post(client, op, "forward", inputs={"x": [1.0]}, **({"mode": mode} if mode else {}))

        for op, mode in (("waits", "graph"), ("waits", "v1"), ("elementwise", ""), ("elementwise", "")):
            problem(answer(op, mode), 504)
        for op, mode in (("waits", "xla"), ("elementwise", "graph")):
            while (refused := answer(op, mode)).status_code == 504:
                assert time.monotonic() < until, one.log()
            assert f"2 traces of op {op} have not ended" in problem(refused, 503)["detail"]
            assert refused.headers["retry-after"] == "5"
        assert "op waits is still traced" in problem(answer("waits", "v1"), 503)["detail"]
        assert answer("waits", "eager").is_success
        while "pullback_traces_late 4.0" not in client.get("/metrics").text:
            assert time.monotonic() < until, one.log()
        time.sleep(3)  # the watchdog looks each second
        assert answer("square", "graph").is_success
        assert client.get("/health/ready").status_code == 200
    assert critical(one) == []
    late = [line for line in own_lines(one) if "a trace goes on" in line]
    assert sorted(line.split(" op ")[1].split(":")[0] for line in late) == ["elementwise"] * 2 + ["waits"] * 2


def test_only_work_that_is_stuck_twice_in_a_row_ends_the_process():
    watch, stuck, late = Watch(Scheduler(1), 10.0), Overrun(11.0, Owner("op")), Overrun(9.0, Owner("op"))
    looks = [watch.look(found) for found in ([stuck], [late], [stuck], [stuck])]
    assert looks == [None, None, None, stuck]
