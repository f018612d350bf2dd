"""Request bodies: the part that is the same in all requests of a loop, and the numbers that change.

The numbers are lists in JSON, flat or nested, or ranges of bytes at fixed positions.
"""

import re
import threading
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
import orjson
import pybase64
import simdjson
from numpy.typing import NDArray

from app.tensors.casting import NUMBERS
from app.tensors.nesting import brackets_of, regular_shape

Numbers: TypeAlias = list[float] | NDArray[np.float64]
Shape: TypeAlias = tuple[int, ...]

# From this size on, simdjson reads lists into arrays; below, a Python object per number costs less.
LONG = 1 << 12
# Stands for a list of numbers. JSON has no such character, so no body is equal to a skeleton.
HOLE = b"[\0]"
# A list of digits up to this length may be a shape. It is a part of the skeleton, whatever it is.
SHORT = 64
DIGITS = b"0123456789, "
# Brackets and what numbers are made of, from a bracket on. The possessive quantifier never goes back: linear time.
RUN = re.compile(rb"[-+0-9.eE,\[\] \t\r\n]*+")
AFTER = b", \t\r\n"
# The most lists of a body that is taken apart: each takes a microsecond, and a request has one or two for each tensor.
MAX_LISTS = 64
# The most ranges with the same bytes: a vjp may have equal inputs and cotangents.
MAX_RANGES = 8


class _Threads(threading.local):
    """A parser for each thread, because a new one for each text would take longer than the parsing."""

    def __init__(self) -> None:
        self.parser = simdjson.Parser()


_threads = _Threads()


class Range(NamedTuple):
    """The bytes of a tensor in a body, or its base64 text."""

    start: int
    stop: int
    is_base64: bool


def split(body: bytes) -> tuple[bytes, list[bytes]] | None:
    """Return the skeleton of a JSON body, which is the body without its lists of numbers, and the text of each list.

    Takes linear time. A nested list is one text. A list of strings stays in the skeleton, and so does a short list of
    digits, such as a shape, or an empty one. ``join`` puts the skeleton and the texts of a JSON body together again.
    Returns ``None`` for a body with more than ``MAX_LISTS`` lists.
    """
    skeleton, texts, end, count = list[bytes](), list[bytes](), 0, 0
    start, following = body.find(b"["), 0
    while start >= 0:
        if (count := count + 1) > MAX_LISTS:
            return None
        following = body.find(b"[", start + 1)
        stop = body.find(b"]", start, following if following >= 0 else len(body)) + 1
        if not stop and (run := RUN.match(body, start)):
            stop = run.end()
            following = body.find(b"[", stop)
        text = body[start:stop].rstrip(AFTER)
        is_short = len(text) <= SHORT and not text[1:-1].translate(None, DIGITS)
        if not is_short and b'"' not in text:
            skeleton += (body[end:start], HOLE)
            texts.append(text)
            end = start + len(text)
        start = following
    skeleton.append(body[end:])
    return b"".join(skeleton), texts


def join(skeleton: bytes, texts: Sequence[bytes]) -> bytes:
    """Return the body with these texts in place of the lists."""
    first, *rest = skeleton.split(HOLE)
    return first + b"".join(chain.from_iterable(zip(texts, rest, strict=True)))


def nested(numbers: Sequence[bytes], shapes: Sequence[Shape]) -> list[bytes]:
    """Return the texts of lists of these shapes, with the texts of the numbers in them."""
    texts, start = list[bytes](), 0
    for shape in shapes:
        level = numbers[start : (start := start + int(np.prod(shape)))]
        for size in reversed(shape):
            level = [b"[%b]" % b",".join(level[first : first + size]) for first in range(0, len(level), size)]
        texts += level
    return texts


def read_lists(texts: Sequence[bytes]) -> tuple[Numbers, tuple[Shape, ...]] | None:
    """Return the numbers of all lists, and the shape of each; ``None`` if one of them is not a tensor of numbers."""
    read = _read_long if sum(map(len, texts)) >= LONG else _read_short
    try:
        found = [read(text) for text in texts]
    except (ValueError, TypeError, RuntimeError):  # from the parsers, and for lists that are no tensors
        return None
    shapes = tuple(shape for _, shape in found)
    if len(found) == 1:
        return found[0][0], shapes
    parts = [numbers for numbers, _ in found]
    return cast("Numbers", np.concatenate(parts) if read is _read_long else list(chain.from_iterable(parts))), shapes


def _read_short(text: bytes) -> tuple[list[float], Shape]:
    level: list[Any] = orjson.loads(text)
    shape: Shape = (len(level),)
    while level and isinstance(level[0], list):
        if set(map(type, level)) != {list} or len(lengths := set(map(len, level))) != 1:
            raise ValueError("expected lists of one length")
        shape += (lengths.pop(),)
        level = list(chain.from_iterable(level))
    if not NUMBERS.issuperset(map(type, level)):
        raise ValueError("expected numbers")
    return level, shape


def _read_long(text: bytes) -> tuple[NDArray[np.float64], Shape]:
    # simdjson checks the syntax, but joins lists of any lengths.
    parsed = _threads.parser.parse(text)
    if not isinstance(parsed, simdjson.Array):
        raise TypeError("expected a list")
    numbers = np.frombuffer(parsed.as_buffer(of_type="d"), np.float64)
    del parsed  # the parser cannot be used again while its last result exists
    is_flat = text.find(b"[", 1) < 0
    return numbers, (len(numbers),) if is_flat else regular_shape(brackets_of(text), len(numbers))


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
