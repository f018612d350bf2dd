"""What becomes of a check whose process crashes or is late."""

import asyncio
import math
import os
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

import pytest

from app.errors import Overloaded
from app.gradcheck.job import Job
from app.gradcheck.report import DEADLINE, Report
from app.processes.check_process import ForkServer
from app.processes.checker import CheckerInProcesses
from app.processes.pool import CheckPool
from app.processes.steps import OP_BUDGET, Limits, OpChecks
from app.telemetry.accounts import Owner
from ops.square import OP
from tests.patience import PATIENCE_S
from tests.processes.obedient import ObedientServer
from tests.processes.pools import OPTIONS, check, empty_report, in_a_pool, sentence, until, verdicts

pytestmark = pytest.mark.slow


def test_a_process_that_others_end_is_replaced_by_another(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test(pool: CheckPool) -> None:
        assert verdicts(await check(pool, f"faint-once {tmp_path / 'seen'}")) == []
        assert "ended with SIGKILL: a new one runs the check again" in caplog.text
        assert verdicts(await check(pool, "faint"))[0] == "fail"
        assert "crashed the process of the check with SIGSEGV" in sentence(await check(pool, "crash"))

    in_a_pool(test)


def test_who_takes_steps_slowly_holds_no_process() -> None:
    async def test(pool: CheckPool) -> None:
        limits = Limits(time.monotonic() + PATIENCE_S)
        slow = CheckerInProcesses(pool).steps(OpChecks(Job("nothing", OPTIONS), empty_report(), limits, Owner("me")))
        await anext(slow)
        assert await check(pool, "nothing")
        assert [step async for step in slow] == []

    in_a_pool(test)


def test_a_report_without_steps_needs_no_process() -> None:
    class Refusing(ObedientServer):
        def __init__(self) -> None:
            raise AssertionError

    async def test(pool: CheckPool) -> None:
        limits, nothing = Limits(time.monotonic() + PATIENCE_S), Report(OP, OPTIONS)
        job = Job("crash", OPTIONS)
        assert [
            step async for step in CheckerInProcesses(pool).steps(OpChecks(job, nothing, limits, Owner("me")))
        ] == []

    in_a_pool(test, server=Refusing)


@pytest.mark.parametrize(("step_s", "op_s", "cure"), [(0.1, math.inf, DEADLINE), (math.inf, 0.1, OP_BUDGET)])
def test_a_late_step_names_its_own_limit(step_s: float, op_s: float, cure: str) -> None:
    async def test(pool: CheckPool) -> None:
        limits = Limits(time.monotonic() + PATIENCE_S, "the whole", step_s, op_s)
        report = empty_report(("contract", "value"))
        async for _ in CheckerInProcesses(pool).steps(OpChecks(Job("hang", OPTIONS), report, limits, Owner("me"))):
            pass
        assert [step.cure for step in report.steps] == [cure] * len(report.steps)
        assert verdicts(await check(pool, "nothing")) == []

    in_a_pool(test)


def test_steps_that_the_service_does_not_know_are_an_error() -> None:
    async def test(pool: CheckPool) -> None:
        assert "each time it loads" in sentence(await check(pool, "differ"))

    in_a_pool(test)


def test_an_op_that_ends_the_fork_server_fails_and_the_others_are_checked(tmp_path: Path) -> None:
    async def test(pool: CheckPool) -> None:
        beside = asyncio.create_task(check(pool, f"hang-once {tmp_path / 'seen'}"))
        await until((tmp_path / "seen").exists)
        report = await check(pool, "end-server")
        assert verdicts(report)[0] == "fail"
        assert sentence(report) == "op end-server ended the process that forks those of checks, twice"
        assert verdicts(await beside) == []

    in_a_pool(test, count=2)


def test_a_fork_server_that_another_thread_waits_for_has_ended() -> None:
    process = subprocess.Popen(["true"], stdin=subprocess.DEVNULL)
    ours, other = socket.socketpair()
    with ours, other:
        # As in ``Popen.wait`` of another thread: the system has forgotten the process, ``poll`` knows nothing yet.
        with vars(process)["_waitpid_lock"]:
            os.waitpid(process.pid, 0)
            assert ForkServer(process, ours).has_ended
        process.wait()


def test_a_fork_server_that_an_op_has_stopped_is_replaced() -> None:
    async def test(pool: CheckPool) -> None:
        await check(pool, "stop-server")
        assert verdicts(await check(pool, "nothing")) == []

    in_a_pool(test)


def test_a_fork_server_that_is_stopped_during_a_check_is_replaced(tmp_path: Path) -> None:
    async def test(pool: CheckPool) -> None:
        running = asyncio.create_task(check(pool, f"hang-once {tmp_path / 'seen'}"))
        await until((tmp_path / "seen").exists)
        assert pool.forks._server is not None
        pool.forks._server.stop()
        assert verdicts(await running) == []

    in_a_pool(test)


def test_a_fork_server_that_is_stopped_before_it_forks_is_replaced() -> None:
    class Stopping(ObedientServer):
        """A fork server of which only the third is not stopped."""

        made = 0

        @classmethod
        def spawned(cls) -> Self:
            cls.made += 1
            return super().spawned()

        def fork(self, kind: bytes, connection: int, memory: int, pipe: int) -> None:
            if self.made < 3:
                self.stop()
            super().fork(kind, connection, memory, pipe)

    async def test(pool: CheckPool) -> None:
        with pytest.raises(Overloaded, match="the fork server is stopped, or has ended, each time; try again"):
            await check(pool, "nothing")
        assert verdicts(await check(pool, "nothing")) == []

    in_a_pool(test, server=Stopping)
