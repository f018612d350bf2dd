"""The timeouts of httpx, for a call with a deadline.

httpx limits each wait alone, by a number that is set before the first: a server that sends a byte now and then would
never time out. A ``CallTimeout`` is such a number that also has the limit of its call.
"""

from typing import Self

from pullback.addresses import Address
from pullback.limits import Limit


class CallTimeout(float):
    """The timeout of a wait, in seconds, and the limit of the call."""

    limit: Limit

    def __new__(cls, seconds: float, limit: Limit) -> Self:
        """Set the limit."""
        made = super().__new__(cls, seconds)
        made.limit = limit
        return made


def timeouts(address: Address, limit: Limit) -> dict[str, float | None]:
    """Return the extension ``timeout`` of a request of httpx; raise ``TimeoutError`` if no time is left."""
    plain = address.timeouts()
    for name in ("connect", "read", "write"):
        wait = limit.wait(plain[name])
        plain[name] = wait if wait is None or limit.seconds is None else CallTimeout(wait, limit)
    return plain


def seconds_of(timeout: float | None) -> float | None:
    """Return how long a wait may take now; raise ``TimeoutError`` if its call has no time left."""
    return timeout.limit.wait(float(timeout)) if isinstance(timeout, CallTimeout) else timeout
