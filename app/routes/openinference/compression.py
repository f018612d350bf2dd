"""Compression of request and response bodies: gzip, and deflate, which is zlib's format.

A body is inflated in steps. Each step is checked against the limits before it allocates memory, and a large body does
not block the event loop.
"""

import asyncio
import zlib
from collections.abc import Mapping, Sequence

from app.errors import Malformed, UnsupportedMediaType, clip
from app.http.body import too_large
from app.http.request import Request
from app.tensors.strict_json import Body

# The value of zlib's wbits for each coding.
CODINGS: Mapping[str, int] = {"gzip": 31, "deflate": 15}
# A body of at most SMALL bytes is inflated on the event loop, up to SMALL bytes, in about a millisecond. The rest is
# inflated on another thread, in steps of at most STEP bytes, compressed or not; the request may end between steps.
SMALL, STEP = 1 << 16, 1 << 20
# zlib copies the unconsumed input at each call, so it gets only this many bytes at once.
_FEED = 1 << 16
# Higher levels hardly shrink numbers, and delay other requests.
_LEVEL = 1


def content_coding(headers: Mapping[bytes, bytes]) -> str | None:
    """Return the coding of a body, ``None`` for no compression; raises ``UnsupportedMediaType`` for unknown codings."""
    coding = headers.get(b"content-encoding", b"").strip().lower().decode("latin-1")
    if coding in ("", "identity"):
        return None
    if coding not in CODINGS:
        raise UnsupportedMediaType(f"expected Content-Encoding: {' or '.join(CODINGS)}, got {clip(coding, 40)!r}")
    return coding


def accepted_coding(headers: Mapping[bytes, bytes]) -> str | None:
    """Return the coding of the response, ``None`` for no compression.

    A list of codings does not count: most HTTP libraries send one by default. A single coding is a deliberate choice.
    """
    coding = headers.get(b"accept-encoding", b"").strip().lower().decode("latin-1")
    return coding if coding in CODINGS else None


async def inflate(body: Body, coding: str, request: Request, limit: int | None = None) -> bytearray:
    """Return the inflated body, of at most ``limit`` bytes; the default is the limit of the request's body.

    Raises ``Malformed`` for invalid, truncated or trailing data, ``BodyTooLarge`` above the limit, and ``Overloaded``
    when the memory budget of all requests has no room for it.
    """
    limit = request.limit if limit is None else limit
    inflater, whole, held = _Inflater(body, coding), bytearray(), 0
    while not inflater.ended:
        is_small = len(body) <= SMALL and not whole
        size = SMALL if is_small else STEP
        if len(whole) + size > held:
            request.hold(STEP)
            held += STEP
        whole += inflater.read(size) if is_small else await asyncio.to_thread(inflater.read, size)
        if len(whole) > limit:
            raise too_large(limit, "more after decompression")
    return whole


def compress(pieces: Sequence[Body], coding: str) -> list[Body]:
    """Return the pieces of a response, compressed."""
    compressor = zlib.compressobj(_LEVEL, wbits=CODINGS[coding])
    compressed: list[Body] = [compressor.compress(piece) for piece in pieces]
    return [*filter(None, compressed), compressor.flush()]


class _Inflater:
    """Inflates a body in parts, until ``ended`` is true."""

    def __init__(self, body: Body, coding: str) -> None:
        self._compressed, self._coding, self._at = memoryview(body), coding, 0
        self._inflater = zlib.decompressobj(CODINGS[coding])
        self.ended = False

    def read(self, size: int) -> bytes:
        """Inflate about ``size`` bytes of input at most; return at most ``size`` bytes. Raises ``Malformed``."""
        part, until = bytearray(), self._at + size
        while not self.ended and self._at < until and len(part) < size:
            part += self._next(size - len(part))
        return bytes(part)

    def _next(self, size: int) -> bytes:
        """Inflate the next compressed bytes; return at most ``size`` bytes, perhaps none."""
        tail: Body = self._inflater.unconsumed_tail
        if not tail:
            tail = self._compressed[self._at : self._at + _FEED]
            self._at += len(tail)
        try:
            piece = self._inflater.decompress(tail, size)
        except zlib.error as error:
            reason = clip(str(error).partition(":")[2] or str(error), 80).strip()
            raise Malformed(f"expected a body compressed with {self._coding}, got invalid data: {reason}") from None
        self.ended = self._inflater.eof
        if not self.ended and not tail and not piece:
            raise Malformed(f"truncated body: expected the end of the {self._coding} stream")
        if self.ended and (left := len(self._inflater.unused_data) + len(self._compressed) - self._at):
            raise Malformed(f"expected nothing after the end of the {self._coding} stream, got {left} bytes")
        return piece
