"""Checks in processes of their own: what they find, and what becomes of a check whose process ends."""

import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from app.execution.check_messages import Began, Dead, Done, Found, Left, Message, Order, Ready
from app.execution.check_pool import LATE_S, CheckPool
from app.execution.check_process import CheckProcess
from app.execution.check_steps import Check
from app.gradcheck.report import Step
from app.gradcheck.reproduce import Reproduction

# How often the memory of a process is measured while it runs a check.
MEASURE_S = 0.25


@dataclass(frozen=True)
class CheckerInProcesses:
    """It runs each check in one of a few other processes: see ``Checker``."""

    pool: CheckPool

    async def steps(self, check: Check) -> AsyncGenerator[Step]:
        """Run the steps in a process. If it ends, this is the finding of the step, and the others are left out."""
        try:
            async with self.pool.process(check.limits.until) as process:
                if process is not None:
                    await process.order(Order(check.job, check.limits, check.owner))
                    async for step in self._follow(check, process):
                        yield step
        finally:
            for step in check.report.steps:
                step.cure = step.cure or check.limits.cure

    async def _follow(self, check: Check, process: CheckProcess) -> AsyncGenerator[Step]:
        """Keep what the process finds; yield each step that begins, until the end of the check or of its time."""
        steps, until, running = check.report.steps, check.limits.until, None
        while True:
            match await self._next(process, until):
                case Began(position):
                    running = steps[position]
                    running.has_begun = True
                    until = min(check.limits.until, check.limits.step()[0] + LATE_S)
                    yield running
                case Found(position, entry):
                    steps[position].entries.append(dict(entry))
                case Left(position, has_ended, cure, seconds):
                    steps[position].has_ended, steps[position].cure = has_ended, cure
                    check.counters.executions += 1
                    check.counters.spent("compute", seconds)
                    until = check.limits.until
                case Done(error):
                    if error is not None:
                        raise error
                    return
                case Ready():
                    pass
                case Dead():
                    self.pool.need_running()
                    self._report_end(check, running or steps[0], process)
                    return
                case _:
                    if running is not None and until < check.limits.until:
                        running.cure = check.limits.step()[1]
                        process.kill()
                    return

    async def _next(self, process: CheckProcess, until: float) -> Message | None:
        """Return the next message, ``None`` if none comes in time; end a process that uses too much memory."""
        while True:
            soon = time.monotonic() + MEASURE_S
            message = await process.receive(min(soon, until))
            if message is not None or soon >= until:
                return message
            if process.memory_mb > self.pool.memory_mb:
                process.kill()

    def _report_end(self, check: Check, step: Step, process: CheckProcess) -> None:
        """Make the end of a process the finding of the step that it ran; leave out the steps after it."""
        at = f" in {process.evaluation}" if process.evaluation else ""
        job, limit_mb = check.job, self.pool.memory_mb
        if process.has_outgrown:
            cure = "raise PULLBACK_CHECK_MEMORY_MB, or request fewer checks, modes or dtypes"
            step.end("error", f"the check was ended{at}, because it used more than {limit_mb} MiB: {cure}")
        elif process.has_crashed:
            command = f"pullback check {job.op} --check {step.check} --seed {job.options.seed}"
            if job.inputs is not None or job.attrs is not None:
                command = "send the same request again"
            sentence = f"op {job.op} crashed the process of the check with {process.status}{at}"
            step.end("fail", sentence, reproduction=Reproduction(command, None))
        else:
            step.end("error", f"the process of the check ended with {process.status}{at}, not by the op: check again")
        for other in check.report.steps:
            if not other.has_ended and other.is_requested:
                other.end("skipped", f"not run, because the process of the check ended in check {step.check}")
