"""Checks in separate processes: their findings, and the finding where a process ends early."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from app.errors import Overloaded
from app.gradcheck.report import LESS, Step
from app.processes.check_process import CheckProcess
from app.processes.forks import BROKEN, ending_of
from app.processes.messages import Began, Dead, Done, Found, Left, Order, Planned, Ready
from app.processes.pool import LATE_S, CheckPool
from app.processes.steps import OpChecks
from pullback.gradcheck.reproduction import Reproduction
from pullback.gradcheck.verdict import Verdict

log = logging.getLogger("pullback")


@dataclass(frozen=True)
class CheckerInProcesses:
    """Runs each check in a separate process, which loads the op from its page in ``pages``: see ``Checker``."""

    pool: CheckPool
    pages: Mapping[str, Path] = field(default_factory=dict[str, Path])

    async def steps(self, checks: OpChecks) -> AsyncGenerator[Step]:
        """Run the steps in a process, which does not wait for the consumer of this generator.

        If the process ends, this is the finding of the step, and the others are left out.
        """
        if not checks.report.steps:
            return
        begun = asyncio.Queue[Step | None]()
        run = asyncio.create_task(self._run(checks, begun))
        try:
            while (step := await begun.get()) is not None:
                yield step
            await run
        finally:
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)

    async def _run(self, checks: OpChecks, begun: asyncio.Queue[Step | None]) -> None:
        """Run the steps; put each into ``begun`` when it first begins, and ``None`` at the end."""
        known = set[Step]()

        def begin(step: Step) -> None:
            if step not in known:
                known.add(step)
                begun.put_nowait(step)

        try:
            if not await self._try(checks, begin, is_last=False):
                checks.report.reset()
                await self._try(checks, begin, is_last=True)
        finally:
            begun.put_nowait(None)

    async def _try(self, checks: OpChecks, begin: Callable[[Step], None], *, is_last: bool) -> bool:
        """Run the steps in a process. Return ``False`` if something other than the op may have ended the process.

        The last try runs alone, so that only its op can end the process.
        """
        page, run = self.pages.get(checks.job.op.partition(".")[0]), _Run(checks, self.pool, begin, is_last)
        try:
            async with self.pool.process(checks.limits.until, alone=is_last) as process:
                if process is None:
                    return True
                checks = run.checks = replace(checks, limits=checks.limits.of_op())
                own = page if page is not None and page.suffix == ".py" else None
                order = Order(self.pool.setup, own, checks.job, checks.limits, checks.owner)
                await process.order(order, checks.limits.until)
                return await run.follow(process)
        finally:
            last = run.running
            cure = last.cure if last is not None and not last.has_ended else checks.limits.cure
            for step in checks.report.steps:
                step.cure = step.cure or cure


@dataclass
class _Run:
    """A run of the steps of a check in a process, and the step that it runs or has run last.

    If the process ends, a run that ``is_last`` reports it in any case.
    """

    checks: OpChecks
    pool: CheckPool
    begin: Callable[[Step], None]
    is_last: bool
    running: Step | None = None
    step_began: float | None = None

    async def follow(self, process: CheckProcess) -> bool:
        """Keep what the process finds, until the end of the check or of its time; return as ``_try`` does."""
        try:
            return await self._follow(process)
        finally:
            # A step that was running has computed too.
            if self.step_began is not None:
                self._count(time.perf_counter() - self.step_began)

    def _count(self, seconds: float) -> None:
        """Count a step that has run for so long."""
        self.step_began = None
        self.checks.counters.executions += 1
        ended = time.perf_counter()
        self.checks.counters.spent("compute", ended - seconds, ended, self.checks.account)

    async def _follow(self, process: CheckProcess) -> bool:
        steps, limits = self.checks.report.steps, self.checks.limits
        until = min(limits.until, process.load_until)
        while True:
            match await process.receive(until):
                case Planned(outline):
                    if outline != self.checks.report.outline:
                        name = self.checks.job.op
                        self._end("error", f"op {name} has other examples or choices of attributes each time it loads")
                        return True
                case Began(position):
                    self.running = steps[position]
                    self.running.has_begun, self.step_began = True, time.perf_counter()
                    end, self.running.cure = limits.step()
                    until = min(limits.until, end + LATE_S)
                    self.begin(self.running)
                case Found(position, entry):
                    steps[position].entries.append(entry)
                case Left(position, has_ended, cure, seconds):
                    steps[position].has_ended, steps[position].cure = has_ended, cure
                    self._count(seconds)
                    until = limits.until
                case Done(error):
                    if error is not None:
                        raise error
                    return True
                case Ready():
                    until = limits.until
                case Dead(status):
                    return self._is_over(process, status)
                case _:
                    if not process.has_begun and until < limits.until:
                        raise Overloaded("no process of checks has started in time; try again", retry_after_s=5)
                    return True

    def _is_over(self, process: CheckProcess, status: int | None) -> bool:
        """Report the end of the process, and return ``True``, unless the check must run again in another one."""
        self.pool.need_running()
        if not process.has_begun and process.has_lost_server and not self.is_last:
            log.warning("the process that forks those of checks is stopped, or has ended: a new one takes its place")
            return False
        if not process.has_begun:
            why = "is stopped, or has ended, each time; try again" if process.has_lost_server else "cannot fork"
            raise Overloaded(f"no process of checks can start: the fork server {why}", retry_after_s=5)
        op = self.checks.job.op
        at = f" in {process.evaluation}" if process.evaluation else ""
        ending = "a failure of its own code" if status == BROKEN else ending_of(status)
        ending = "SIGSTOP" if process.was_stopped else ending
        if process.has_outgrown:
            cure = f"raise PULLBACK_PROCESS_MEMORY_MB, or {LESS}"
            self._end("error", f"the check was ended{at}, because it used more than {self.pool.memory_mb} MiB: {cure}")
        elif process.has_crashed:
            self._end("fail", f"op {op} crashed the process of the check with {ending}{at}", self._command)
        elif not self.is_last and not self.checks.is_late:
            log.warning("the process of the check of op %s ended with %s: a new one runs the check again", op, ending)
            return False
        else:
            # Others may end a process by a signal, but seldom twice.
            sentence = f"op {op} broke the process of the check, which ended with {ending}{at}, twice"
            if status is None:
                sentence = f"op {op} ended the process that forks those of checks{at}, twice"
            self._end("fail", sentence, self._command)
        return True

    @property
    def _command(self) -> Reproduction:
        job = self.checks.job
        command = f"pullback check {job.op} --check {self._step.check} --seed {job.options.seed}"
        return Reproduction(
            command if job.inputs is None and job.attrs is None else "send the same request again", None
        )

    @property
    def _step(self) -> Step:
        return self.running or self.checks.report.steps[0]

    def _end(self, verdict: Verdict, sentence: str, reproduction: Reproduction | None = None) -> None:
        """End the step that runs with a finding; leave out those after it."""
        self._step.has_begun = True
        self._step.end(verdict, sentence, reproduction=reproduction)
        for other in self.checks.report.steps:
            if not other.has_ended and other.is_requested:
                other.end("skipped", f"not run, because the process of the check ended in check {self._step.check}")
