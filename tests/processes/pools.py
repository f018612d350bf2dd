"""A pool of obedient processes, and checks that order what these do."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from functools import cache
from unittest.mock import patch

from app.gradcheck.job import Job
from app.gradcheck.options import Options
from app.gradcheck.report import Report
from app.processes import pool
from app.processes.check_process import ForkServer
from app.processes.checker import CheckerInProcesses
from app.processes.messages import Setup
from app.processes.pool import CheckPool
from app.processes.sources import Sources
from app.processes.steps import Limits, OpChecks
from app.settings import Settings
from app.telemetry.accounts import Owner
from ops.square import OP
from tests.patience import PATIENCE_S, PAUSE_S
from tests.processes.obedient import ObedientServer

OPTIONS = Options({"cpu": "/CPU:0"}, ("float64",), ("graph",))
FILES = "/proc/self/fd"


@cache
def setup() -> Setup:
    return Setup(Settings(), Sources(()), frozenset())


def in_a_pool(
    test: Callable[[CheckPool], Awaitable[None]],
    *,
    memory_mb: int = 1 << 20,
    server: type[ForkServer] = ObedientServer,
    count: int = 1,
) -> None:
    """Run a test with a pool of ``count`` processes; fail if a descriptor is left open."""

    async def run() -> None:
        pool = CheckPool(setup(), count, memory_mb)
        try:
            await test(pool)
        finally:
            await pool.close()

    before = len(os.listdir(FILES))
    with patch.object(pool, "ForkServer", server):
        asyncio.run(run())
    end = time.monotonic() + PATIENCE_S
    while len(os.listdir(FILES)) > before:  # the threads of processes that have been killed close their ends
        assert time.monotonic() < end
        time.sleep(PAUSE_S)


def empty_report(checks: tuple[str, ...] = ("contract",)) -> Report:
    return Job("square", OPTIONS, checks).report(OP)


async def check(pool: CheckPool, action: str, seconds: float = PATIENCE_S) -> Report:
    """Order an action; return the report."""
    report, limits = empty_report(), Limits(time.monotonic() + seconds)
    async for _ in CheckerInProcesses(pool).steps(OpChecks(Job(action, OPTIONS), report, limits, Owner("me"))):
        pass
    return report


def verdicts(report: Report) -> list[str]:
    return [entry.verdict for step in report.steps for entry in step.entries]


def sentence(report: Report) -> str:
    return report.steps[0].entries[0].sentence


async def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(PAUSE_S)
