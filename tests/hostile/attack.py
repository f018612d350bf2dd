"""One attack: the bytes for one connection, and the answers that must come."""

from dataclasses import dataclass

from tests.hostile.requests import Request
from tests.hostile.witness import Good


@dataclass(frozen=True)
class Attack:
    """Pieces that are sent on one connection, with a pause after each.

    The answers to ``expected`` must come, in this order. If there are none and ``is_whole``, some answer must come: the
    pieces are one request, whose framing is right. Otherwise any answer may come, or none.
    """

    kind: str
    pieces: tuple[bytes, ...]
    pause_s: float = 0.0
    expected: tuple[Good, ...] = ()
    is_whole: bool = False
    method: str = "POST"


def whole(kind: str, request: Request) -> Attack:
    """Return the attack that is one request, framed as it should be."""
    return Attack(kind, (request.encode(),), is_whole=True, method=request.method)
