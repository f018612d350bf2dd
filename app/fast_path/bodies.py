"""The numbers of request bodies: lists in JSON, flat or nested, or ranges of bytes at fixed positions."""

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


def read_lists(texts: Sequence[bytes | bytearray]) -> tuple[Numbers, tuple[Shape, ...]] | None:
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


def _read_short(text: bytes | bytearray) -> tuple[list[float], Shape]:
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


def _read_long(text: bytes | bytearray) -> tuple[NDArray[np.float64], Shape]:
    # simdjson checks the syntax, but joins lists of any lengths.
    parsed = _threads.parser.parse(text)
    if not isinstance(parsed, simdjson.Array):
        raise TypeError("expected a list")
    numbers = np.frombuffer(parsed.as_buffer(of_type="d"), np.float64)
    del parsed  # the parser cannot be used again while its last result exists
    is_flat = text.find(b"[", 1) < 0
    return numbers, (len(numbers),) if is_flat else regular_shape(brackets_of(text), len(numbers))


def read_range(body: bytes, place: Range, dtype: np.dtype[Any]) -> NDArray[Any] | None:
    """Return the tensor in a range of a body, flat; ``None`` if the text is not base64 of such tensors."""
    if not place.is_base64:
        return np.frombuffer(body, dtype, (place.stop - place.start) // dtype.itemsize, place.start)
    text = body[place.start : place.stop]
    try:
        return np.frombuffer(pybase64.b64decode(text, validate=True), dtype)
    except ValueError:
        return None


def without(body: bytes, places: Sequence[Range]) -> tuple[bytes, ...]:
    """Return the parts of a body between its ranges, which are in order."""
    starts = (0, *(place.stop for place in places))
    stops = (*(place.start for place in places), len(body))
    return tuple(body[start:stop] for start, stop in zip(starts, stops, strict=True))
