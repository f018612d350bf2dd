"""Compressed bodies, both ways: gzip, and deflate, which is zlib's format.

A body is inflated in steps: each is counted against the limits before its memory is taken, and a large one does not
hold up the event loop.
"""

import asyncio
import zlib
from collections.abc import Iterator, Mapping, Sequence

from starlette.types import Scope

from app.body import too_large
from app.errors import Malformed, UnsupportedMediaType, clip
from app.limits import charge, size_limit
from app.tensors.document import Body

# What zlib calls the formats.
CODINGS: Mapping[str, int] = {"gzip": 31, "deflate": 15}
# So much is inflated on the event loop, in less than a millisecond; then come larger steps, elsewhere.
SMALL, STEP = 1 << 16, 1 << 20
# The inflater copies what it has not looked at yet, again and again.
_FEED = 1 << 16
# Numbers hardly become smaller by more work, and others wait for it.
_LEVEL = 1


def content_coding(headers: Mapping[bytes, bytes]) -> str | None:
    """Return how a body is compressed, ``None`` where it is not; raises ``UnsupportedMediaType`` for other codings."""
    coding = headers.get(b"content-encoding", b"").strip().lower().decode("latin-1")
    if coding in ("", "identity"):
        return None
    if coding not in CODINGS:
        raise UnsupportedMediaType(f"expected Content-Encoding: {' or '.join(CODINGS)}, got {clip(coding, 40)!r}")
    return coding


def accepted_coding(headers: Mapping[bytes, bytes]) -> str | None:
    """Return the coding of an answer, ``None`` for none.

    One coding alone is asked for by whoever wants it; most HTTP libraries send a list of all that they know.
    """
    coding = headers.get(b"accept-encoding", b"").strip().lower().decode("latin-1")
    return coding if coding in CODINGS else None


async def inflated(body: Body, coding: str, scope: Scope) -> bytearray:
    """Return what a compressed body is.

    Raises ``Malformed`` for what is not compressed so, is cut short, or goes on after its end, ``BodyTooLarge`` for
    more than the request's body may have, and ``Overloaded`` when all requests together have no room for it.
    """
    limit, inflater, whole, step, came = size_limit(scope), _Inflater(body, coding), bytearray(), SMALL, SMALL
    while came == step:
        step = STEP if whole else SMALL
        charge(scope, step)
        piece = await asyncio.to_thread(inflater.read, step) if whole else inflater.read(step)
        whole += piece
        if len(whole) > limit:
            raise too_large(limit, "more, inflated")
        came = len(piece)
    return whole


def deflated(pieces: Sequence[Body], coding: str) -> list[Body]:
    """Return the pieces of an answer, compressed."""
    packer = zlib.compressobj(_LEVEL, wbits=CODINGS[coding])
    packed: list[Body] = [packer.compress(piece) for piece in pieces]
    return [*filter(None, packed), packer.flush()]


class _Inflater:
    """Inflates a body, a part at a time."""

    def __init__(self, body: Body, coding: str) -> None:
        self._pieces, self._coding, self._size = self._inflated(memoryview(body), CODINGS[coding]), coding, 0

    def read(self, size: int) -> bytes:
        """Return the next ``size`` bytes, fewer where the body ends, and ends well; raises ``Malformed``."""
        self._size, found = size, list[bytes]()
        try:
            while self._size and (piece := next(self._pieces, b"")):
                self._size -= len(piece)
                found.append(piece)
        except zlib.error as error:
            said = clip(str(error).partition(":")[2] or str(error), 80).strip()
            raise Malformed(f"expected a body that is compressed by {self._coding}, got another: {said}") from None
        return b"".join(found)

    def _inflated(self, packed: memoryview, wbits: int) -> Iterator[bytes]:
        """Yield pieces of at most so many bytes as are wanted when they are asked for."""
        inflater, at = zlib.decompressobj(wbits), 0
        while not inflater.eof:
            tail: Body = inflater.unconsumed_tail
            if not tail:
                tail, at = packed[at : at + _FEED], at + _FEED
            piece = inflater.decompress(tail, self._size)
            if not tail and not piece and not inflater.eof:
                raise Malformed(f"the body is cut short: expected the end of what {self._coding} has compressed")
            if piece:
                yield piece
        if left := len(inflater.unused_data) + max(0, len(packed) - at):
            raise Malformed(f"expected nothing after the end of what {self._coding} has compressed, got {left} bytes")
