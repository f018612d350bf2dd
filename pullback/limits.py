"""The time that a call may take, and the retries that it may have."""

import time

from pullback.responses import Response, retry_after

DEFAULT_RETRIES = 3
RETRY_S = 30.0
"""The limit on the sum of all pauses of one call, in seconds."""
GRACE_S = 0.5
"""How long a client waits after the deadline of a call for the service's own answer, in seconds."""
TRY_AGAIN = (429, 503)


class Limit:
    """The time that is left for a call, with all its retries."""

    def __init__(self, seconds: float | None) -> None:
        """Start now; ``None`` sets no limit."""
        self.seconds = seconds
        self._end = None if seconds is None else time.monotonic() + seconds

    @property
    def left(self) -> float | None:
        """The seconds until the deadline, at least 0; ``None`` without one."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    @property
    def has_passed(self) -> bool:
        """Whether the deadline has passed."""
        return self.left == 0

    def wait(self, timeout: float | None) -> float | None:
        """Return how long to wait for the network: ``timeout``, but not past the deadline and its grace."""
        if self._end is None:
            return timeout
        left = max(0.001, self._end + GRACE_S - time.monotonic())
        return left if timeout is None else min(left, timeout)

    def headers(self) -> dict[str, str]:
        """Return the header that tells the service the deadline, in milliseconds from now."""
        left = self.left
        return {} if left is None else {"Pullback-Deadline-Ms": str(max(1, round(1000 * left)))}


class Retries:
    """The retries of a call after a 429 or 503 with a time."""

    def __init__(self, count: int, seconds: float | None = None) -> None:
        """Allow ``count`` retries, with ``seconds`` of pauses in all, at most ``RETRY_S``."""
        self._left = count
        self._seconds = RETRY_S if seconds is None else min(seconds, RETRY_S)

    def pause(self, response: Response) -> float | None:
        """Return the seconds to wait before the next try, or ``None`` to give up."""
        if response.status not in TRY_AGAIN:
            return None
        wait = retry_after(response)
        if wait is None or self._left < 1 or not wait <= self._seconds:
            return None
        self._left -= 1
        self._seconds -= wait
        return wait
