"""The processes of jobs: each runs one job at a time, and is kept for the next one."""

import logging
import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from app.errors import OpFailed, Overloaded, PullbackError
from app.kept.job_records import Answer, Claim, Progress
from app.processes import messages
from app.processes.check_process import CheckProcess
from app.processes.forks import BROKEN, ending_of
from app.processes.messages import FORK_FOR_JOBS, Dead, Done, Head, Piece, Ready, Setup
from app.processes.pool import LATE_S, Forks

log = logging.getLogger("pullback")

Follow: TypeAlias = Callable[[Progress], Awaitable[None]]
"""Takes how far a job has come."""

Charge: TypeAlias = Callable[[str, float], None]
"""Counts for a key, by its name, that its job has computed for so many seconds."""


class Died(Exception):
    """The process of a job has ended before the answer; the text says how."""


class JobProcesses:
    """Processes of jobs, which have the same ``setup``. One that uses ``memory_mb`` is ended."""

    def __init__(self, setup: Setup, forks: Forks, memory_mb: int, charge: Charge) -> None:
        """Start nothing yet; ``charge`` counts what each job has computed."""
        self._setup, self._forks, self._memory_mb, self._charge = setup, forks, memory_mb, charge
        self._idle = list[CheckProcess]()

    async def run(self, claim: Claim, limit_s: float, most: int, follow: Follow) -> Answer:
        """Return the answer to the request of a job; its process has ended when this was cancelled.

        ``follow`` takes how far the job has come, again and again.

        Raises ``Died``, ``OpFailed`` where the answer has more than ``most`` bytes or the process too much memory or
        time, and ``Overloaded`` where no process can start.
        """
        process, compute_s = await self._process(), None
        began = time.monotonic()
        try:
            until = began + limit_s + LATE_S
            await process.order(claim, until)
            answer, compute_s = await self._answer(process, until, most, follow)
        except BaseException:
            process.close()
            await process.ended()
            raise
        finally:
            # Where it does not say what it has computed, it may have computed all the time.
            self._charge(claim.key, time.monotonic() - began if compute_s is None else compute_s)
        self._idle.append(process)
        return answer

    def close(self) -> None:
        """End the processes that run no job."""
        while self._idle:
            self._idle.pop().close()

    async def _process(self) -> CheckProcess:
        """Return a process that has loaded the ops."""
        while self._idle:
            process = self._idle.pop()
            if not process.status:
                return process
            process.close()
        try:
            process = CheckProcess(self._forks.server(), self._memory_mb, FORK_FOR_JOBS)
        except (OSError, RuntimeError) as error:  # no memory, descriptor, process or thread is left
            raise Overloaded(f"no process of jobs can start: {error}", retry_after_s=5) from error
        try:
            await process.order(self._setup, process.load_until)
            match await process.receive(process.load_until):
                case Ready():
                    return process
                case Done(PullbackError() as error):
                    raise error
                case Dead(status):
                    raise Overloaded(f"a process of jobs ended with {ending_of(status)} as it started")
                case _:
                    raise Overloaded("no process of jobs has started in time")
        except BaseException:
            process.close()
            await process.ended()
            raise

    async def _answer(self, process: CheckProcess, until: float, most: int, follow: Follow) -> tuple[Answer, float]:
        """Return the answer, and the seconds that it has computed."""
        head, pieces, size = Head(500, ()), list[bytes](), 0
        while True:
            match await process.receive(until):
                case Head() as head:
                    pass
                case messages.Progress(done, total):
                    await follow(Progress(done, total))
                case Piece(data):
                    pieces.append(data)
                    size += len(data)
                    if size > most:
                        raise OpFailed(f"the answer has more than {most} bytes (PULLBACK_JOBS_MB)")
                case Done(PullbackError() as error):
                    raise OpFailed(error.detail)
                case Done(_, compute_s):
                    return Answer(head.status, head.headers, b"".join(pieces)), compute_s
                case Dead(status):
                    raise self._death(process, status)
                case _:
                    raise OpFailed("the job took longer than PULLBACK_JOB_S")

    def _death(self, process: CheckProcess, status: int | None) -> Exception:
        at = f" in {process.evaluation}" if process.evaluation else ""
        if process.has_outgrown:
            cure = "raise PULLBACK_PROCESS_MEMORY_MB, or request less"
            return OpFailed(f"the job used more than {self._memory_mb} MiB{at}: {cure}")
        ending = (
            "SIGSTOP" if process.was_stopped else "a failure of its own code" if status == BROKEN else ending_of(status)
        )
        return Died(f"its process ended with {ending}{at}")
