"""The processes of checks: each runs one check at a time, and is replaced when it grows or dies."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from app.errors import Overloaded, PullbackError
from app.execution.check_messages import Dead, Done, Ready, Setup
from app.execution.check_process import CheckProcess, ForkServer

# A process keeps the time of its steps itself. One that is late by this much does not pause, and is killed.
LATE_S = 2.0
STOPPING = "the service is shutting down and cannot finish this check: try again"


class CheckPool:
    """The processes of checks, of which at most ``count`` are in use.

    TensorFlow keeps much of what it traces, so a process that uses more than half of ``memory_mb`` after a check is
    replaced. Whoever uses it ends one that uses all of it.
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
        if not self._unused and not self._used and not self.is_stopping:
            self._unused.append(self._new())

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
    async def process(self, until: float) -> AsyncGenerator[CheckProcess | None]:
        """Have an idle process inside this block; ``None`` if there is none in time.

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
            process = self._unused.pop() if self._unused else self._new()
            if process.status:
                process.close()
                process = self._new()
            self._used.add(process)
            is_started = process.is_idle or await self._is_started(process, until)
            yield process if is_started else None
        except PullbackError:
            raise
        except BaseException:
            if process is not None:
                process.kill()
            raise
        finally:
            if process is None:
                self._places.release()
            else:
                self._give_back(process)

    async def _is_started(self, process: CheckProcess, until: float) -> bool:
        """Wait until a process has loaded the ops; return ``False`` if it has not in time."""
        match await process.receive(until):
            case Done(error) if error is not None:
                process.kill()  # it ends, but has not yet
                raise error
            case Dead():
                self.need_running()
                raise Overloaded(
                    f"the process of checks ended with {process.status} while it loaded the ops", retry_after_s=5
                )
            case message:
                return isinstance(message, Ready)

    def _new(self) -> CheckProcess:
        if self._server is None or self._server.has_ended:
            self._server = ForkServer()
        try:
            return CheckProcess(self._server, self._setup)
        except OSError as error:
            raise Overloaded(f"no process of checks can start: {error.strerror}", retry_after_s=5) from error

    def _give_back(self, process: CheckProcess) -> None:
        """Free the place of a process: at once if it is idle, starts or is killed, else when it is."""
        if process.is_idle or process.is_killed or process.status or not process.has_loaded:
            self._free(process)
        else:
            task = asyncio.create_task(self._settle(process))
            self._settling.add(task)
            task.add_done_callback(self._settling.discard)

    async def _settle(self, process: CheckProcess) -> None:
        """Free the place of a process that is about to stop what it does."""
        until = time.monotonic() + LATE_S
        while not isinstance(await process.receive(until), Done | Dead | None):
            pass
        self._free(process)

    def _free(self, process: CheckProcess) -> None:
        """Free the place of a process, and keep it, or start another ahead of the next check."""
        self._used.discard(process)
        is_good = not (process.is_killed or process.status) and (process.is_idle or not process.has_loaded)
        if not self.is_stopping and is_good and process.memory_mb <= self.memory_mb / 2:
            self._unused.append(process)
        else:
            process.close()
            if not self.is_stopping:
                self._unused.append(self._new())
        self._places.release()
