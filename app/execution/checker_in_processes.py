"""Checks in separate processes: their findings, and the finding where a process ends early."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from app.execution.check_messages import Began, Dead, Done, Found, Left, Order, Planned, Ready
from app.execution.check_pool import LATE_S, CheckPool
from app.execution.check_process import CheckProcess
from app.execution.check_steps import Check
from app.gradcheck.report import Step
from pullback.gradcheck.reproduction import Reproduction
from pullback.gradcheck.verdict import Verdict

log = logging.getLogger("pullback")


@dataclass(frozen=True)
class CheckerInProcesses:
    """Runs each check in one of a few other processes: see ``Checker``."""

    pool: CheckPool

    async def steps(self, check: Check) -> AsyncGenerator[Step]:
        """Run the steps in a process, which does not wait for the consumer of this generator.

        If the process ends, this is the finding of the step, and the others are left out.
        """
        if not check.report.steps:
            return
        begun = asyncio.Queue[Step | None]()
        run = asyncio.create_task(self._run(check, begun))
        try:
            while (step := await begun.get()) is not None:
                yield step
            await run
        finally:
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)

    async def _run(self, check: Check, begun: asyncio.Queue[Step | None]) -> None:
        """Run the steps; put each into ``begun`` when it first begins, and ``None`` at the end."""
        known = set[Step]()

        def begin(step: Step) -> None:
            if step not in known:
                known.add(step)
                begun.put_nowait(step)

        try:
            if not await self._try(check, begin):
                check.report.reset()
                await self._try(check, begin, is_new=True)
        finally:
            begun.put_nowait(None)

    async def _try(self, check: Check, begin: Callable[[Step], None], *, is_new: bool = False) -> bool:
        """Run the steps in a process, with ``is_new`` one that has run no other check.

        Return ``False`` if it crashed and had run others, one of which may be the cause, or ended before any step.
        """
        run = _Run(check, self.pool, begin, is_new)
        try:
            async with self.pool.process(check.limits.until, is_new=is_new) as process:
                if process is None:
                    return True
                await process.order(Order(check.job, check.limits, check.owner))
                return await run.follow(process)
        finally:
            last = run.running
            cure = last.cure if last is not None and not last.has_ended else check.limits.cure
            for step in check.report.steps:
                step.cure = step.cure or cure


@dataclass
class _Run:
    """A run of the steps of a check in a process, and the step that it runs or has run last.

    If the process ends, a run that ``is_last`` reports it in any case.
    """

    check: Check
    pool: CheckPool
    begin: Callable[[Step], None]
    is_last: bool
    running: Step | None = None

    async def follow(self, process: CheckProcess) -> bool:
        """Keep what the process finds, until the end of the check or of its time; return as ``_try`` does."""
        steps, limits = self.check.report.steps, self.check.limits
        until = limits.until
        while True:
            match await process.receive(until):
                case Planned(outline):
                    if outline != self.check.report.outline:
                        process.kill()
                        name = self.check.job.op
                        self._end("error", f"op {name} has other examples or choices of attributes each time it loads")
                        return True
                case Began(position):
                    self.running = steps[position]
                    self.running.has_begun = True
                    end, self.running.cure = limits.step()
                    until = min(limits.until, end + LATE_S)
                    self.begin(self.running)
                case Found(position, entry):
                    steps[position].entries.append(dict(entry))
                case Left(position, has_ended, cure, seconds):
                    steps[position].has_ended, steps[position].cure = has_ended, cure
                    self.check.counters.executions += 1
                    self.check.counters.seconds["compute"] += seconds
                    until = limits.until
                case Done(error):
                    if error is not None:
                        raise error
                    return True
                case Ready():
                    pass
                case Dead():
                    return self._is_over(process)
                case _:
                    if until < limits.until:
                        process.kill()
                    return True

    def _is_over(self, process: CheckProcess) -> bool:
        """Report the end of the process, and return ``True``, unless the check must run again in a new one."""
        self.pool.need_running()
        op = self.check.job.op
        is_unclear = self.running is None or (process.has_crashed and process.checks > 1)
        if is_unclear and not (self.is_last or process.has_outgrown or self.check.is_late):
            log.warning(
                "the process of checks ended with %s in the check of op %s, after others, the last of op %s: "
                "a new process runs the check again",
                *(process.status, op, process.previous_op),
            )
            return False
        self._report_end(process)
        return True

    def _report_end(self, process: CheckProcess) -> None:
        """Make the end of a process the finding of the step that it ran."""
        at = f" in {process.evaluation}" if process.evaluation else ""
        job, limit_mb = self.check.job, self.pool.memory_mb
        if process.has_outgrown:
            cure = "raise PULLBACK_CHECK_MEMORY_MB, or request fewer checks, modes or dtypes"
            self._end("error", f"the check was ended{at}, because it used more than {limit_mb} MiB: {cure}")
        elif process.has_crashed:
            command = f"pullback check {job.op} --check {self._step.check} --seed {job.options.seed}"
            if job.inputs is not None or job.attrs is not None:
                command = "send the same request again"
            sentence = f"op {job.op} crashed the process of the check with {process.status}{at}"
            self._end("fail", sentence, Reproduction(command, None))
        else:
            self._end("error", f"the process of the check ended with {process.status}{at}, not by the op: check again")

    @property
    def _step(self) -> Step:
        return self.running or self.check.report.steps[0]

    def _end(self, verdict: Verdict, sentence: str, reproduction: Reproduction | None = None) -> None:
        """End the step that runs with a finding; leave out those after it."""
        self._step.has_begun = True
        self._step.end(verdict, sentence, reproduction=reproduction)
        for other in self.check.report.steps:
            if not other.has_ended and other.is_requested:
                other.end("skipped", f"not run, because the process of the check ended in check {self._step.check}")
