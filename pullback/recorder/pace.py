"""When a check may ask the server, so that the application hardly notices."""

import asyncio
import time
from dataclasses import dataclass

from pullback.recorder.relay import Traffic

SHARE = 0.01
"""The share of the time that evaluations of the checks may take while the application calls the server."""
PATIENCE_S = 0.5
"""How long a check waits for a moment in which no request is in flight."""
IDLE_S, IDLE = 0.1, 25.0
"""An application is idle after so many seconds, and so many times an evaluation: then the checks go on."""
LOOK_S = 0.002
FORGET = 0.9


@dataclass(eq=False)
class Pace:
    """Grants evaluations one by one: after one that took t, the next after t / ``SHARE``, or while nothing happens.

    So they take the share that they may, and an application that comes back waits for one evaluation at most. Once
    ``is_free``, all are granted at once.
    """

    traffic: Traffic
    is_free: bool = False
    _granted: float | None = None
    _next: float = 0.0
    _longest: float = 0.0

    async def turn(self) -> None:
        """Wait until an evaluation may begin."""
        self.finish()
        late = max(self._next, time.monotonic()) + PATIENCE_S
        while not self.is_free:
            now = time.monotonic()
            if self.traffic.idle_s > max(IDLE_S, IDLE * self._longest):
                break
            if now >= self._next and (not self.traffic.in_flight or now >= late):
                break
            await asyncio.sleep(max(LOOK_S, self._next - now) if now < self._next else LOOK_S)
        self._granted = time.monotonic()

    def finish(self) -> None:
        """Note that the last evaluation has ended."""
        if self._granted is None:
            return
        now = time.monotonic()
        took = now - self._granted
        self._granted = None
        self._longest = max(took, FORGET * self._longest)
        self._next = now + took * (1 / SHARE - 1)
