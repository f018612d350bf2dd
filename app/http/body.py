"""A request's body on its way in: who has one, how it is read, and what bounds it while it comes."""

from collections.abc import Mapping

from starlette.types import Message, Receive

from app.errors import BodyTooLarge, BodyTooSlow, Malformed, Overloaded
from app.http.zero_copy import ZeroCopyBody
from app.settings import MB


class ClientGone(Exception):
    """The client closed the connection: nobody is there to answer."""


class Budget:
    """The bytes that all bodies of this process may hold together."""

    def __init__(self, limit: int) -> None:
        """Start with ``limit`` bytes, all free."""
        self.limit = self.free = limit

    def take(self, size: int) -> None:
        """Take ``size`` bytes, or raise ``Overloaded``."""
        if size > self.free:
            raise Overloaded(
                f"requests in progress hold {_mb(self.limit - self.free)} of {_mb(self.limit)}, "
                f"and this body needs {_mb(size)} more: try again later"
            )
        self.free -= size

    def give(self, size: int) -> None:
        """Give back what was taken."""
        self.free += size


class Intake:
    """One body as it comes: never more than ``limit`` bytes, all of them from the budget."""

    def __init__(self, receive: Receive, budget: Budget, *, declared: int, limit: int, json_limit: int = 0) -> None:
        """Take the ``declared`` bytes from the budget; ``json_limit`` is for JSON that is a part of the body."""
        budget.take(declared)
        self.held, self._came = declared, 0
        self.limit, self.json_limit = limit, json_limit
        self._receive, self._budget = receive, budget

    async def receive(self) -> Message:
        """Return the next message, or raise ``BodyTooLarge`` or ``Overloaded``."""
        message = await self._receive()
        self._count(len(message.get("body", b"")))
        return message

    def too_slow(self) -> BodyTooSlow:
        """Return the error for a body that is not there at the deadline."""
        return BodyTooSlow(f"expected the whole body before the deadline, got {self._came} bytes of it")

    def charge(self, size: int) -> None:
        """Take ``size`` bytes more from the budget, for what becomes of the body, or raise ``Overloaded``."""
        self._budget.take(size)
        self.held += size

    def _count(self, size: int) -> None:
        self._came += size
        if self._came > self.limit:
            raise too_large(self.limit, "more")
        if self._came > self.held:
            self._budget.take(self._came - self.held)
            self.held = self._came


def has_body(headers: Mapping[bytes, bytes]) -> bool:
    """Return whether a request with these headers brings a body."""
    return headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers


async def read_body(receive: Receive) -> bytes | bytearray:
    """Return the whole body: as it came when it came in one piece, else copied once.

    Raises ``ClientGone`` when the client leaves before its end, and what ``Intake.receive`` raises.
    """
    message = await _piece(receive)
    if not message.get("more_body", False):
        return message.get("body", b"")
    body = bytearray(message.get("body", b""))
    while message.get("more_body", False):
        message = await _piece(receive)
        body += message.get("body", b"")
    return body


async def read_into(room: memoryview, receive: Receive, straight: ZeroCopyBody | None = None) -> None:
    """Fill ``room`` with the body, which must have as many bytes; what comes ``straight`` is there without a copy.

    Raises what ``read_body`` does, and ``Malformed`` when there are more or fewer bytes.
    """
    came, more = 0, True
    if straight:
        straight.lend(room)
    try:
        while more:
            message = await _piece(receive)
            piece, more = message.get("body", b""), message.get("more_body", False)
            end = came + len(piece)
            if end > len(room) or (not more and end < len(room)):
                raise Malformed(f"expected a body of {len(room)} bytes (Content-Length), got {end}")
            if not (isinstance(piece, memoryview) and piece.obj is room.obj):
                room[came:end] = piece
            came = end
    finally:
        if straight:
            straight.take_back()


async def _piece(receive: Receive) -> Message:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientGone
    return message


def too_large(limit: int, got: str) -> BodyTooLarge:
    """Return the error for a body over ``limit`` bytes."""
    return BodyTooLarge(f"expected a body of at most {limit} bytes ({_mb(limit)}), got {got}")


def _mb(size: int) -> str:
    return f"{size / MB:.3g} MiB"
