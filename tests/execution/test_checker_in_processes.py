"""What becomes of a check whose process crashes or is late."""

import os
import signal
import time

import pytest

from app.execution.check_pool import CheckPool
from app.execution.check_steps import Check, Limits
from app.execution.checker_in_processes import CheckerInProcesses
from app.gradcheck.job import Job
from app.gradcheck.report import DEADLINE, Report
from ops.square import OP
from tests.execution.pools import OPTIONS, check, empty_report, in_a_pool, sentence, verdicts
from tests.patience import PATIENCE_S


def test_a_crash_after_the_check_of_another_op_counts_only_if_it_comes_again(caplog: pytest.LogCaptureFixture) -> None:
    async def test(pool: CheckPool) -> None:
        await check(pool, "corrupt")
        assert verdicts(await check(pool, "suffer")) == []
        assert "in the check of op suffer, after others, the last of op corrupt" in caplog.text
        assert "SIGSEGV" in sentence(await check(pool, "crash"))

    in_a_pool(test)


def test_who_takes_steps_slowly_holds_no_process() -> None:
    async def test(pool: CheckPool) -> None:
        limits = Limits(time.monotonic() + PATIENCE_S)
        slow = CheckerInProcesses(pool).steps(Check(Job("nothing", OPTIONS), empty_report(), limits, "me"))
        await anext(slow)
        assert await check(pool, "nothing")
        assert [step async for step in slow] == []

    in_a_pool(test)


def test_a_report_without_steps_needs_no_process() -> None:
    async def test(pool: CheckPool) -> None:
        limits, nothing = Limits(time.monotonic() + PATIENCE_S), Report(OP, OPTIONS)
        job = Job("crash", OPTIONS)
        assert [step async for step in CheckerInProcesses(pool).steps(Check(job, nothing, limits, "me"))] == []
        assert pool._server is None

    in_a_pool(test)


def test_a_late_step_names_its_own_limit() -> None:
    async def test(pool: CheckPool) -> None:
        limits, report = Limits(time.monotonic() + PATIENCE_S, "the whole", 0.1), empty_report(("contract", "value"))
        async for _ in CheckerInProcesses(pool).steps(Check(Job("hang", OPTIONS), report, limits, "me")):
            pass
        assert [step.cure for step in report.steps] == [DEADLINE] * len(report.steps)

    in_a_pool(test)


def test_steps_that_the_service_does_not_know_are_an_error() -> None:
    async def test(pool: CheckPool) -> None:
        assert "each time it loads" in sentence(await check(pool, "differ"))

    in_a_pool(test)


def test_a_process_that_ends_before_it_begins_is_replaced() -> None:
    async def test(pool: CheckPool) -> None:
        assert "error" in verdicts(await check(pool, "faint"))
        await check(pool, "nothing")
        [process] = pool._unused
        os.kill(process._pid, signal.SIGKILL)
        assert verdicts(await check(pool, "nothing")) == []

    in_a_pool(test)
