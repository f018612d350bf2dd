"""Requests to evil ops: the service stays up, or the supervisor replaces a worker, and other requests are answered."""

import contextlib
from functools import partial
from pathlib import Path

from tests.hostile.findings import LOST, STATUS
from tests.hostile.replacement import lose_a_worker
from tests.hostile.requests import post
from tests.hostile.rules import BUSY, judge
from tests.hostile.stage import Stage
from tests.hostile.wire import Lost
from tests.hostile.witness import ask, watch

# The ops of ``tests/hostile/evil.py``, which imports TensorFlow.
SURVIVABLE = (
    *("evil_sleep", "evil_spin", "evil_exit", "evil_surrogate", "evil_surrogate_py", "evil_long", "evil_nested"),
    *("evil_traceback", "evil_numpy", "evil_interrupt", "evil_trace_exit", "evil_trace_surrogate", "evil_trace_long"),
    "evil_tensor",
)
# These end the process of their kernel, which no service survives.
DEADLY = ("evil_exit_at_once", "evil_crash")
MODES = ("eager", "graph")
DEADLINE_MS, SLEEP_S, STUCK_S = 4000, 8.0, 100_000.0
# A worker is stuck when its deadline and a minute have passed.
STUCK_REPLACED_S = 180.0


def write_plugins(folder: Path) -> None:
    """Write a plug-in for each op."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (*SURVIVABLE, *DEADLY):
        text = f"from tests.hostile.evil import OPS\n\nOP = OPS[{name!r}]\n"
        (folder / f"{name}.py").write_text(text, encoding="ascii")


def attack(stage: Stage) -> None:
    """Call every op that a process survives between good requests, then the deadly ones."""
    with watch(stage.target, stage.goods, stage.findings, stage.seed):
        for name in SURVIVABLE:
            for mode in MODES:
                _call(stage, name, mode)
    for name in DEADLY:
        lose_a_worker(stage, partial(_send, stage, name))
    if stage.seconds > STUCK_REPLACED_S / 2:
        lose_a_worker(stage, partial(_send, stage, "evil_sleep", STUCK_S), STUCK_REPLACED_S)


def _call(stage: Stage, name: str, mode: str) -> None:
    """Call an op, and record an answer that is none for an op that fails or is late."""
    x = SLEEP_S if name == "evil_sleep" else 1.0
    request = post(f"/v1/ops/{name}/forward", {"inputs": {"x": x}, "mode": mode}, pullback_deadline_ms=str(DEADLINE_MS))
    stage.findings.sent()
    try:
        answer = ask(stage.target.port, request)
    except (Lost, OSError) as error:
        stage.findings.fail(LOST, f"{name} in mode {mode}: {error}")
        return
    judge(answer, stage.findings, f"{name} in mode {mode}", (request.encode(),))
    if answer.status not in (422, 500, *BUSY) and name != "evil_spin":
        stage.findings.fail(STATUS, f"{name} in mode {mode}: {answer.status} {answer.body[:200]!r}")


def _send(stage: Stage, name: str, x: float = 1.0) -> None:
    stage.findings.sent()
    with contextlib.suppress(Lost, OSError):
        ask(stage.target.port, post(f"/v1/ops/{name}/forward", {"inputs": {"x": x}, "mode": "eager"}))
