"""The limit of gradient checks: a check takes seconds of CPU for a request of two bytes.

Each check, or stream of checks, holds a place from its first step to its last. The others wait in order, each until its
own deadline.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from app.errors import Forbidden, Overloaded

# How many checks may wait for each that runs.
WAITING = 32


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
