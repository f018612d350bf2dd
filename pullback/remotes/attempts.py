"""When to try again what was refused, though later calls may succeed."""


class Attempts:
    """When to try what was refused before: after 1, 2, 4 and more calls without it, and at each call once it works."""

    def __init__(self) -> None:
        """Begin with a try."""
        self._pause = self._left = 0

    def is_due(self) -> bool:
        """Report whether to try at this call. Threads may count a call twice, which only moves the next try."""
        self._left -= 1
        return self._left < 0

    def failed(self) -> None:
        """Double the pause."""
        self._pause = self._left = min(2 * self._pause or 1, 1024)

    def succeeded(self) -> None:
        """End the pause."""
        self._pause = self._left = 0
