"""The time that a call may take, and the retries that it may have."""

import time
from numbers import Integral, Real

from pullback.errors import BadArgument
from pullback.responses import Response, retry_after

DEFAULT_RETRIES = 3
RETRY_S = 30.0
"""The limit on the sum of all pauses of one call, in seconds."""
GRACE, GRACE_S = 0.1, 0.5
"""How long a client waits after the deadline for the service's own answer: a share of the deadline, at most seconds."""
LONGEST_S = 1e6
"""From here on, a time is no limit: a socket cannot wait for more than 24 days."""
TRY_AGAIN = (429, 503)


def checked(name: str, seconds: float | None) -> float | None:
    """Return the seconds of an argument, ``None`` for no limit, such as infinity; raise ``BadArgument``."""
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, Real) or not seconds > 0:
        raise BadArgument(f"{name}: expected seconds above 0, or None for no limit, got {seconds!r}")
    return None if seconds >= LONGEST_S else float(seconds)


def at_least(least: int, name: str, count: int) -> int:
    """Return the count of an argument; raise ``BadArgument``."""
    if isinstance(count, bool) or not isinstance(count, Integral) or count < least:
        raise BadArgument(f"{name}: expected at least {least}, got {count!r}")
    return int(count)


class Limit:
    """The time that is left for a call, with all its waits, retries and pauses."""

    def __init__(self, seconds: float | None) -> None:
        """Start now; ``None`` sets no limit."""
        self.seconds = seconds
        self._end = self._last = None
        if seconds is not None:
            self._end = time.monotonic() + seconds
            self._last = self._end + min(GRACE_S, GRACE * seconds)

    @property
    def left(self) -> float | None:
        """The seconds until the deadline, at least 0; ``None`` without one."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    @property
    def has_passed(self) -> bool:
        """Whether the deadline has passed."""
        return self.left == 0

    def wait(self, timeout: float | None) -> float | None:
        """Return how long to wait for the network: ``timeout``, but not past the deadline and its grace.

        Raises ``TimeoutError`` after that.
        """
        if self._last is None:
            return timeout
        left = self._last - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left if timeout is None else min(left, timeout)

    def extend(self, seconds: float) -> None:
        """Move the deadline: this time was not the call's own."""
        if self._end is not None and self._last is not None:
            self._end, self._last = self._end + seconds, self._last + seconds

    def headers(self) -> dict[str, str]:
        """Return the header with the deadline, in milliseconds from now."""
        left = self.left
        return {} if left is None else {"Pullback-Deadline-Ms": str(max(1, round(1000 * left)))}


class Retries:
    """The retries of a call after a 429 or 503 with a time."""

    def __init__(self, count: int, limit: Limit) -> None:
        """Allow ``count`` retries, with ``RETRY_S`` of pauses in all, within the limit of the call."""
        self._left, self._limit = count, limit
        self._seconds = RETRY_S

    def pause(self, response: Response) -> float | None:
        """Return the seconds to wait before the next try, or ``None`` to give up."""
        if response.status not in TRY_AGAIN:
            return None
        wait, left = retry_after(response), self._limit.left
        if wait is None or self._left < 1 or not wait <= self._seconds or (left is not None and wait >= left):
            return None
        self._left -= 1
        self._seconds -= wait
        return wait
