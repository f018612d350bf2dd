"""The processes of checks: a fresh fork for each check, so that no verdict depends on what was checked before."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager, suppress

from app.errors import Forbidden, Overloaded
from app.processes.check_process import CheckProcess, ForkServer
from app.processes.messages import Setup

# How many checks may wait for each that runs.
WAITING = 32
# A process keeps the time of its steps itself. One that is late by this much does not pause, and is killed.
LATE_S = 2.0
STOPPING = "the service is shutting down and cannot finish this check: try again"


# Each check, or stream of checks, holds a place from its first step to its last. The others wait in order, each until
# its own deadline.
class CheckLimiter:
    """The places for checks in a process."""

    def __init__(self, count: int = 2) -> None:
        """Start with ``count`` places, all free; with none, every check is refused."""
        self._count, self._waiting = count, 0
        self._places = asyncio.Semaphore(count)

    @asynccontextmanager
    async def place(self) -> AsyncGenerator[None]:
        """Hold a place inside this block.

        Raises ``Forbidden`` if the service has no places, and ``Overloaded`` if too many checks already wait.
        """
        if not self._count:
            raise Forbidden("gradient checks are disabled in this service (PULLBACK_CHECKS=0)")
        if self._waiting >= WAITING * self._count:
            raise Overloaded(f"{self._waiting} gradient checks wait for {self._count} places", retry_after_s=10)
        self._waiting += 1
        try:
            await self._places.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._places.release()


class Forks:
    """The fork server, which another one replaces when it has died."""

    def __init__(self, server: ForkServer | None = None) -> None:
        """Start nothing yet; the first fork server may be this one."""
        self._server = server

    def server(self) -> ForkServer:
        """Return the fork server, a new one if there is none or it has died; raise ``OSError`` if it cannot start."""
        if self._server is not None and self._server.has_ended:
            self._server.close()
            self._server = None
        if self._server is None:
            self._server = ForkServer.spawned()
        return self._server

    async def close(self) -> None:
        """End it, and all its processes."""
        if self._server is not None:
            await asyncio.to_thread(self._server.close)


class CheckPool:
    """The processes of checks, of which at most ``count`` run at a time. One that uses ``memory_mb`` is ended."""

    def __init__(self, setup: Setup, count: int, memory_mb: int, forks: Forks | None = None) -> None:
        """Start nothing yet."""
        self.setup, self.count, self.memory_mb, self.is_stopping = setup, count, memory_mb, False
        self._places, self._running = asyncio.Semaphore(count), set[CheckProcess]()
        self._turn = asyncio.Lock()
        self.forks = forks or Forks()

    def start(self) -> None:
        """Start the fork server, ahead of the first check. If it cannot start, the first check tries again."""
        if not self.is_stopping:
            with suppress(OSError):
                self.forks.server()

    def stop(self) -> None:
        """End the checks that run, and start no others."""
        self.is_stopping = True
        for process in self._running:
            process.kill()

    async def close(self) -> None:
        """End all processes."""
        self.stop()
        await self.forks.close()

    def need_running(self) -> None:
        """Raise ``Overloaded`` after ``stop``."""
        if self.is_stopping:
            raise Overloaded(STOPPING)

    @asynccontextmanager
    async def process(self, until: float, *, alone: bool = False) -> AsyncGenerator[CheckProcess | None]:
        """Have a new process inside this block, which has ended after it; ``None``: no place was free in time.

        If it is ``alone``, no other runs meanwhile. Raises ``Overloaded`` if no process can start.
        """
        with ExitStack() as places:
            try:
                # In turn: of two that wait for all places, neither may hold some.
                async with asyncio.timeout(until - time.monotonic()), self._turn:
                    for _ in range(self.count if alone else 1):
                        await self._places.acquire()
                        places.callback(self._places.release)
            except TimeoutError:
                places.close()
                yield None
                return
            self.need_running()
            process = self._new()
            self._running.add(process)
            try:
                yield process
            finally:
                process.close()
                await process.ended()
                self._running.discard(process)

    def _new(self) -> CheckProcess:
        try:
            return CheckProcess(self.forks.server(), self.memory_mb)
        except (OSError, RuntimeError) as error:  # no memory, descriptor, process or thread is left
            raise Overloaded(f"no process of checks can start: {error}", retry_after_s=5) from error
