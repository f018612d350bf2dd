"""How much time lessons may take, so that they never cost other requests more than they save."""

import time

# A lesson takes as long as a few requests. A loop of requests with one frame needs one lesson; requests that never
# repeat would need one each, and all others would pay for it.
SHARE, AT_MOST_S = 0.1, 1.0


class Allowance:
    """Seconds of CPU that may be spent: ``AT_MOST_S`` at first, from then on a ``SHARE`` of the time that passes."""

    def __init__(self) -> None:
        """Start full."""
        self._left, self._counted = AT_MOST_S, time.monotonic()

    @property
    def is_left(self) -> bool:
        """Whether any time is left."""
        now = time.monotonic()
        self._left, self._counted = min(AT_MOST_S, self._left + SHARE * (now - self._counted)), now
        return self._left > 0

    def spend(self, seconds: float) -> None:
        """Subtract the time of a lesson, which may be longer than what was left."""
        self._left -= seconds
