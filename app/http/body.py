"""Request bodies: the memory that they share, and the errors for a body without room."""

from app.errors import BodyTooLarge, Overloaded
from app.settings import MB

# The most digits of a number in a header.
MAX_DIGITS = 18


class ClientGone(Exception):
    """The client closed the connection, so no response is needed."""


class Budget:
    """The bytes that all bodies of this process may hold together: the ``limit``, and how many are ``free``."""

    def __init__(self, limit: int) -> None:
        """Start with ``limit`` bytes, all free."""
        self.limit = self.free = limit

    def refusal(self, size: int) -> Overloaded:
        """Return the error for a request that needs ``size`` bytes more than are free."""
        return Overloaded(
            f"requests in progress hold {_mb(self.limit - self.free)} of {_mb(self.limit)}, "
            f"and this body needs {_mb(size)} more: try again later"
        )


def too_large(limit: int, got: str) -> BodyTooLarge:
    """Return the error for a body over ``limit`` bytes."""
    return BodyTooLarge(f"expected a body of at most {limit} bytes ({_mb(limit)}), got {got}")


def _mb(size: int) -> str:
    return f"{size / MB:.3g} MiB"
