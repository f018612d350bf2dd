"""Compressed bodies, both ways: gzip, and deflate, which is zlib's format.

A body is inflated in steps: each is counted against the limits before its memory is taken, and a large one does not
hold up the event loop.
"""

import asyncio
import zlib
from collections.abc import Mapping, Sequence

from app.errors import Malformed, UnsupportedMediaType, clip
from app.http.body import too_large
from app.http.request import Request
from app.tensors.strict_json import Body

# What zlib calls the formats.
CODINGS: Mapping[str, int] = {"gzip": 31, "deflate": 15}
# A body of so much is begun on the event loop, and inflated there to as much, in about a millisecond; what is larger is
# inflated elsewhere, in steps of so many bytes at most, compressed or not, between which the request may end.
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


async def inflated(body: Body, coding: str, request: Request, limit: int | None = None) -> bytearray:
    """Return what a compressed body is, of at most ``limit`` bytes: those that the request's body may have.

    Raises ``Malformed`` for what is not compressed so, is cut short, or goes on after its end, ``BodyTooLarge`` for
    more than the limit, and ``Overloaded`` when all requests together have no room for it.
    """
    limit = request.limit if limit is None else limit
    inflater, whole, charged = _Inflater(body, coding), bytearray(), 0
    while not inflater.ended:
        is_small = len(body) <= SMALL and not whole
        size = SMALL if is_small else STEP
        if len(whole) + size > charged:
            request.hold(STEP)
            charged += STEP
        whole += inflater.read(size) if is_small else await asyncio.to_thread(inflater.read, size)
        if len(whole) > limit:
            raise too_large(limit, "more after decompression")
    return whole


def deflated(pieces: Sequence[Body], coding: str) -> list[Body]:
    """Return the pieces of an answer, compressed."""
    packer = zlib.compressobj(_LEVEL, wbits=CODINGS[coding])
    packed: list[Body] = [packer.compress(piece) for piece in pieces]
    return [*filter(None, packed), packer.flush()]


class _Inflater:
    """Inflates a body, a part at a time, until it has ``ended``."""

    def __init__(self, body: Body, coding: str) -> None:
        self._packed, self._coding, self._at = memoryview(body), coding, 0
        self._inflater = zlib.decompressobj(CODINGS[coding])
        self.ended = False

    def read(self, size: int) -> bytes:
        """Return the next bytes, at most ``size``, and no more of them than so many compressed ones stand for.

        Raises ``Malformed``.
        """
        found, until = bytearray(), self._at + size
        while not self.ended and self._at < until and len(found) < size:
            found += self._next(size - len(found))
        return bytes(found)

    def _next(self, size: int) -> bytes:
        """Return what some more of the compressed bytes stand for, perhaps nothing."""
        tail: Body = self._inflater.unconsumed_tail
        if not tail:
            tail = self._packed[self._at : self._at + _FEED]
            self._at += len(tail)
        try:
            piece = self._inflater.decompress(tail, size)
        except zlib.error as error:
            said = clip(str(error).partition(":")[2] or str(error), 80).strip()
            raise Malformed(f"expected a body compressed with {self._coding}, got invalid data: {said}") from None
        self._look_for_the_end(is_fed=len(tail) > 0 or len(piece) > 0)
        return piece

    def _look_for_the_end(self, *, is_fed: bool) -> None:
        self.ended = self._inflater.eof
        if not self.ended and not is_fed:
            raise Malformed(f"truncated body: expected the end of the {self._coding} stream")
        if self.ended and (left := len(self._inflater.unused_data) + len(self._packed) - self._at):
            raise Malformed(f"expected nothing after the end of the {self._coding} stream, got {left} bytes")
