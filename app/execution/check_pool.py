"""The processes of checks: each runs one check at a time, and is replaced when it grows or dies."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from app.errors import Overloaded, PullbackError
from app.execution.check_messages import Dead, Done, Ready, Setup
from app.execution.check_process import CheckProcess, ForkServer

log = logging.getLogger("pullback")

# A process keeps the time of its steps itself. One that is late by this much does not pause, and is killed.
LATE_S = 2.0
STOPPING = "the service is shutting down and cannot finish this check: try again"


class CheckPool:
    """The processes of checks, of which at most ``count`` are in use.

    TensorFlow keeps much of what it traces, so a process that uses more than half of ``memory_mb`` after a check is
    replaced. One that uses all of it ends itself.
    """

    def __init__(self, setup: Setup, count: int, memory_mb: int) -> None:
        """Start nothing yet."""
        self.memory_mb, self.is_stopping = memory_mb, False
        self._setup, self._places = setup, asyncio.Semaphore(count)
        self._unused, self._used = list[CheckProcess](), set[CheckProcess]()
        self._settling = set[asyncio.Task[None]]()
        self._server: ForkServer | None = None

    def start(self) -> None:
        """Start a process, ahead of the first check."""
        if not self._unused and not self._used:
            self._start_ahead()

    def stop(self) -> None:
        """End the checks that run, and start no others."""
        self.is_stopping = True
        for process in self._used:
            process.kill()

    async def close(self) -> None:
        """End all processes."""
        self.stop()
        while self._unused:
            self._unused.pop().close()
        if self._server is not None:
            await asyncio.to_thread(self._server.close)

    def need_running(self) -> None:
        """Raise ``Overloaded`` after ``stop``."""
        if self.is_stopping:
            raise Overloaded(STOPPING)

    @asynccontextmanager
    async def process(self, until: float, *, is_new: bool = False) -> AsyncGenerator[CheckProcess | None]:
        """Have an idle process inside this block, with ``is_new`` one that has run no check; ``None``: none in time.

        If the block is cancelled, the process is ended at once; if it is not idle at the end, it is ended soon. Raises
        ``Overloaded`` if no process can start.
        """
        try:
            async with asyncio.timeout(until - time.monotonic()):
                await self._places.acquire()
        except TimeoutError:
            yield None
            return
        process: CheckProcess | None = None
        try:
            self.need_running()
            process = self._take(is_new)
            self._used.add(process)
            is_started = process.is_idle or await self._is_started(process, until)
            try:
                yield process if is_started else None
            except PullbackError:
                raise
            except BaseException:
                process.kill()
                raise
        finally:
            if process is None:
                self._places.release()
            else:
                self._release(process)

    def _take(self, is_new: bool) -> CheckProcess:
        """Return an unused process that lives, or a new one."""
        while self._unused:
            process = self._unused.pop()
            if not (process.status or process.is_overdue or (is_new and process.checks)):
                return process
            process.close()
        return self._new()

    async def _is_started(self, process: CheckProcess, until: float) -> bool:
        """Wait until a process has loaded the ops; return ``False`` if it has not in time."""
        match await process.receive(min(until, process.load_until)):
            case Ready():
                return True
            case Done(error) if error is not None:
                process.kill()  # it ends, but has not yet
                raise error
            case Dead():
                self.need_running()
                raise Overloaded(
                    f"the process of checks ended with {process.status} while it loaded the ops", retry_after_s=5
                )
            case _:
                if process.is_overdue:
                    raise Overloaded("the process of checks does not load the ops; another starts", retry_after_s=5)
                return False

    def _new(self) -> CheckProcess:
        try:
            if self._server is not None and self._server.has_ended:
                self._server.close()
                self._server = None
            if self._server is None:
                self._server = ForkServer()
            return CheckProcess(self._server, self._setup, self.memory_mb)
        except (OSError, RuntimeError) as error:  # no memory, descriptor, process or thread is left
            raise Overloaded(f"no process of checks can start: {error}", retry_after_s=5) from error

    def _start_ahead(self) -> None:
        """Start a process ahead of the next check. If none can start, the next check tries again."""
        if not self.is_stopping:
            try:
                self._unused.append(self._new())
            except Overloaded as error:
                log.warning("%s", error.detail)

    def _release(self, process: CheckProcess) -> None:
        """Free the place of a process: at once, or when the check that it runs is over."""
        if process.is_busy and not process.is_killed:
            task = asyncio.create_task(self._settle(process))
            self._settling.add(task)
            task.add_done_callback(self._settling.discard)
        else:
            self._free(process)

    async def _settle(self, process: CheckProcess) -> None:
        """Free the place of a process when it has stopped its check, or after ``LATE_S``."""
        until = time.monotonic() + LATE_S
        while not isinstance(await process.receive(until), Done | Dead | None):
            pass
        self._free(process)

    def _free(self, process: CheckProcess) -> None:
        """Free the place of a process, and keep it, or start another ahead of the next check."""
        self._used.discard(process)
        try:
            if not self.is_stopping and process.is_good and process.memory_mb <= self.memory_mb / 2:
                self._unused.append(process)
            else:
                process.close()
                self._start_ahead()
        finally:
            self._places.release()
