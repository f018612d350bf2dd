"""Request bodies: the part that is the same in all requests of a loop, and the numbers that change.

The numbers are flat lists in JSON, or ranges of bytes at fixed positions.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import orjson
import pybase64
import simdjson
from numpy.typing import NDArray

from app.tensors.casting import NUMBERS

Numbers: TypeAlias = list[float] | NDArray[np.float64]

# From this size on, simdjson reads lists into arrays; below, a Python object per number costs less.
LONG = 1 << 12
# Stands for the numbers of a list. JSON has no such character, so no body is equal to a frame.
HOLE = b"[\0]"
# A list of digits up to this length may be a shape. It is a part of the frame, whatever it is.
SHORT = 64


# The most ranges with the same bytes: a vjp may have equal inputs and cotangents.
MAX_RANGES = 8
# It has one result at a time, and the express way is on one thread.
_PARSER = simdjson.Parser()


class Range(NamedTuple):
    """The bytes of a tensor in a body, or its base64 text."""

    start: int
    stop: int
    is_base64: bool


def split(body: bytes) -> tuple[bytes, list[bytes]]:
    """Return a JSON body without the numbers of its flat lists, and the text of each such list.

    A list of strings stays in the body, and so does a short list of digits, such as a shape, or an empty one. The first
    part of the result and the texts determine the body: ``join`` puts them together.
    """
    # bytes.split compares byte by byte: with it, this took 20 us for a body of 20 KB; with find, 8 us.
    frame, texts = list[bytes](), list[bytes]()
    end, start = 0, body.find(b"[")
    while start >= 0:
        following = body.find(b"[", start + 1)
        stop = body.find(b"]", start, following if following >= 0 else len(body))
        text = body[start + 1 : stop]
        is_short = len(text) <= SHORT and not text.translate(None, b"0123456789, ")
        if stop >= 0 and not is_short and b'"' not in text:
            frame += (body[end:start], HOLE)
            texts.append(text)
            end = stop + 1
        start = following
    frame.append(body[end:])
    return b"".join(frame), texts


def join(frame: bytes, texts: Sequence[bytes]) -> bytes:
    """Return the body with these texts in place of the numbers."""
    parts = frame.split(HOLE)
    return parts[0] + b"".join(b"[%b]%b" % pair for pair in zip(texts, parts[1:], strict=True))


def read_lists(texts: Sequence[bytes]) -> tuple[Numbers, tuple[int, ...]] | None:
    """Return the numbers of all lists, and the length of each list; ``None`` if one of them is not a list of numbers.

    ``texts`` have no brackets, so each is read as exactly one list.
    """
    if sum(map(len, texts)) >= LONG:
        return _read_long(texts)
    try:
        rows: list[list[Any]] = orjson.loads(b"[[%b]]" % b"],[".join(texts))
    except orjson.JSONDecodeError:
        return None
    flat = rows[0] if len(rows) == 1 else list(chain.from_iterable(rows))
    return (flat, tuple(map(len, rows))) if NUMBERS.issuperset(map(type, flat)) else None


def _read_long(texts: Sequence[bytes]) -> tuple[Numbers, tuple[int, ...]] | None:
    rows: list[NDArray[np.float64]] = []
    for text in texts:
        try:
            part = _PARSER.parse(b"[%b]" % text)
            if not isinstance(part, simdjson.Array):
                return None
            rows.append(np.frombuffer(part.as_buffer(of_type="d"), np.float64))
        except (ValueError, TypeError, RuntimeError):  # from the parser
            return None
        del part  # the parser cannot be reused while its last result exists
    return np.concatenate(rows), tuple(map(len, rows))


def read_range(body: bytes, place: Range, dtype: np.dtype[Any]) -> NDArray[Any] | None:
    """Return the tensor in a range of a body, flat; ``None`` if the text is not base64 as an encoder writes it."""
    if not place.is_base64:
        return np.frombuffer(body, dtype, (place.stop - place.start) // dtype.itemsize, place.start)
    text = body[place.start : place.stop]
    try:
        raw = pybase64.b64decode(text, validate=True)
        tensor = np.frombuffer(raw, dtype)  # its padding may stand for other bytes
    except ValueError:
        return None
    return tensor if pybase64.b64encode(raw) == text else None


def find_ranges(body: bytes, array: NDArray[Any]) -> list[Range]:
    """Return where the bytes of a tensor are in a body, as they are or, if they are not there, in base64."""
    raw = array.tobytes()
    for text, is_base64 in ((raw, False), (pybase64.b64encode(raw), True)):
        starts, at = list[int](), body.find(text)
        while at >= 0 and len(starts) < MAX_RANGES:
            starts.append(at)
            at = body.find(text, at + len(text))
        if starts:
            return [Range(start, start + len(text), is_base64) for start in starts]
    return []


def fill(body: bytes, places: Sequence[Range], arrays: Sequence[NDArray[Any]]) -> bytes:
    """Return the body with these tensors in its ranges."""
    filled = bytearray(body)
    for place, array in zip(places, arrays, strict=True):
        filled[place.start : place.stop] = pybase64.b64encode(array.tobytes()) if place.is_base64 else array.tobytes()
    return bytes(filled)


def without(body: bytes, places: Sequence[Range]) -> tuple[bytes, ...]:
    """Return the parts of a body between its ranges, which are in order."""
    starts = (0, *(place.stop for place in places))
    stops = (*(place.start for place in places), len(body))
    return tuple(body[start:stop] for start, stop in zip(starts, stops, strict=True))
