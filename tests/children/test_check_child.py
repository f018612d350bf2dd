"""The process of checks: what it does about a step that does not stop."""

import asyncio
import threading
import time
from dataclasses import dataclass
from multiprocessing import Pipe
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.children import checks
from app.children.checks import _Child
from app.execution.engine import Engine
from app.execution.scheduler import Scheduler
from app.gradcheck.job import Job
from app.gradcheck.report import DEADLINE, Report
from app.processes.messages import Began, Done, Left, Order, Planned
from app.processes.steps import Limits
from app.runtime.cancellation import Checkpoint
from app.telemetry.accounts import Owner
from ops import Op
from ops.square import OP
from tests.patience import PATIENCE_S
from tests.processes.pools import OPTIONS, setup


@dataclass(frozen=True)
class Sleeping(Job):
    """Steps that sleep without the lock of the interpreter, and look at no deadline."""

    seconds: float = 0.0

    def report(self, op: Op) -> Report:
        report = super().report(op)
        for step in report.steps:
            step.run = self._sleep
        return report

    def _sleep(self, checkpoint: Checkpoint) -> None:
        del checkpoint
        time.sleep(self.seconds)


@pytest.mark.parametrize(("seconds", "settle_s"), [(0.4, PATIENCE_S), (3.0, 0.3)])
def test_no_step_waits_for_one_that_does_not_stop(
    seconds: float, settle_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "_exit", lambda: None)  # it ends the process, which is the test
    monkeypatch.setattr(checks, "SETTLE_S", settle_s)
    scheduler = Scheduler(8)
    scheduler.start()
    found_op = {"op": lambda name: OP, "with_parameters": lambda op, job: op}
    engine = cast(Engine, SimpleNamespace(scheduler=scheduler, **found_op))
    ours, theirs = Pipe()
    job = Sleeping("square", OPTIONS, ("contract", "value"), seconds=seconds)
    child = _Child(theirs)
    found = list[Any]()

    async def run() -> None:
        order = Order(setup(), None, job, Limits(time.monotonic() + PATIENCE_S, "all", 0.2), Owner("me"))
        running = asyncio.create_task(child.run(engine, order))
        while not found or not isinstance(found[-1], Done):
            found.append(await asyncio.to_thread(ours.recv))
        running.cancel()

    asyncio.run(run())
    ours.close()
    for thread in threading.enumerate():
        if thread.name == "end":
            thread.join(PATIENCE_S)  # it calls what ``_exit`` is during this test
    scheduler.stop()
    steps = [message for message in found if isinstance(message, Began | Left)]
    if seconds < settle_s:
        assert len(steps) == 2 * len(job.report(OP).steps)
    else:
        assert [type(message) for message in steps] == [Began, Left]
        assert found[-1] == Done()
    assert isinstance(found[1], Planned)
    assert not steps[1].has_ended
    assert steps[1].cure == DEADLINE
