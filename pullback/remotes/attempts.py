"""When to repeat an attempt that has failed, because a later one may succeed."""


class Attempts:
    """When to repeat an attempt that has failed: after 1, 2, 4 and more calls; at each call once it has succeeded."""

    def __init__(self) -> None:
        """Make the first attempt at the first call."""
        self._pause = self._left = 0

    def is_due(self) -> bool:
        """Report whether to try at this call. Threads may count a call twice, which only moves the next attempt."""
        self._left -= 1
        return self._left < 0

    def failed(self) -> None:
        """Double the pause."""
        self._pause = self._left = min(2 * self._pause or 1, 1024)

    def succeeded(self) -> None:
        """End the pause."""
        self._pause = self._left = 0
