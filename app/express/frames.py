"""Frames: what the ordinary way made of a request, with the numbers left out of the request and of its response."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import orjson
import pybase64
from numpy.typing import NDArray

from app.express.bodies import Numbers, Range, read_range
from app.express.calls import Call
from app.runtime.modes import Key
from app.telemetry.counters import Counters
from app.tensors.json import plain_mask
from ops import Array

Columns: TypeAlias = list[Numbers | Array]
Form: TypeAlias = Literal["list", "nested", "base64", "bytes"]
# The most bytes of a body, and of the body of a response, besides the numbers.
MAX_TEXT = 1 << 12
# The bytes of a frame without its texts and constants.
BARE = 2000
NUMPY = orjson.OPT_SERIALIZE_NUMPY
# The text of the only float32 that orjson does not write exactly (``app.tensors.json``), and that of a NaN.
AMBIGUOUS, NULL = b"7.038531e-26", b"null"
# Up to this length, rows are written together. To search the text of longer ones takes longer than to write each.
SHORT_ROW = 64


@dataclass(frozen=True)
class Hole:
    """The place of a result in a response: its key, its shape, and the form in which its numbers are written."""

    key: Key
    form: Form
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Response:
    """A response without its numbers: ``texts`` are the parts of the body around the holes.

    ``head`` has the parts around the date, the length of the body, and the request id, in this order.
    """

    head: tuple[bytes, bytes, bytes, bytes]
    texts: tuple[bytes, ...]
    holes: tuple[Hole, ...]

    def body(self, numbers: Sequence[bytes | None]) -> bytes | None:
        """Return the body with these texts in its holes, ``None`` if one is missing."""
        first, *rest = self.texts
        parts = [first]
        for number, text in zip(numbers, rest, strict=True):
            if number is None:
                return None
            parts += (number, text)
        return b"".join(parts)


@dataclass(frozen=True, eq=False)
class Frame:
    """A learned request: what computes its response, and who counts it.

    All tensors of the request have ``size`` numbers. ``parse_counters`` count the time of reading.
    """

    call: Call
    size: int
    response: Response
    counters: Counters
    parse_counters: Counters

    @property
    def weight(self) -> int:
        """The bytes of memory that the frame takes, about."""
        return BARE + sum(map(len, (*self.response.head, *self.response.texts)))


@dataclass(frozen=True, eq=False)
class ListFrame(Frame):
    """A request in JSON, whose numbers are in lists.

    ``text`` is the body without them, and ``lengths`` are those of the lists. A leaf is a part of all numbers of the
    body, or a tensor that is the same in all requests, such as the cotangent of a request without one. The numbers must
    be between ``low`` and ``high``.
    """

    text: bytes
    lengths: tuple[int, ...]
    leaves: tuple[slice | Array, ...]
    low: float
    high: float

    @property
    def weight(self) -> int:
        """The bytes of memory that the frame takes, about."""
        return super().weight + len(self.text) + _bytes_of(self.leaves)

    def columns(self, numbers: Numbers) -> Columns | None:
        """Return the leaves for the numbers of a body; ``None`` if a number may overflow the dtype."""
        if self.call.dtype != np.float64:
            # Python's min and max would take an array apart, number by number.
            is_array = isinstance(numbers, np.ndarray)
            least, greatest = (numbers.min(), numbers.max()) if is_array else (min(numbers), max(numbers))
            if not (self.low < least and greatest < self.high):
                return None
        leaves: Columns = []
        for leaf in self.leaves:
            leaves.append(numbers[leaf] if isinstance(leaf, slice) else leaf)
        return leaves


@dataclass(frozen=True, eq=False)
class RangeFrame(Frame):
    """A request whose tensors are ranges of bytes in its body, with ``around`` them the bytes that do not change.

    A leaf is the number of a range, or a tensor that is the same in all requests.
    """

    leaves: tuple[int | Array, ...]
    ranges: tuple[Range, ...]
    around: tuple[bytes, ...]

    @property
    def weight(self) -> int:
        """The bytes of memory that the frame takes, about."""
        return super().weight + sum(map(len, self.around)) + _bytes_of(self.leaves)

    def fits(self, body: bytes) -> bool:
        """Return whether a body of the same length differs from the learned one in its ranges only."""
        starts = (0, *(place.stop for place in self.ranges))
        return all(map(body.startswith, self.around, starts))

    def columns(self, body: bytes) -> Columns | None:
        """Return the leaves in a body; ``None`` if one cannot be read."""
        tensors = list[Array]()
        for place in self.ranges:
            if (tensor := read_range(body, place, self.call.dtype)) is None:
                return None
            tensors.append(tensor)
        return [tensors[leaf] if isinstance(leaf, int) else leaf for leaf in self.leaves]


def _bytes_of(leaves: Iterable[object]) -> int:
    return sum(leaf.nbytes for leaf in leaves if isinstance(leaf, np.ndarray))


def write(rows: NDArray[Any], hole: Hole) -> Sequence[bytes | None]:
    """Return the text of each row of results for a hole; ``None`` for one that the ordinary way must write."""
    match hole.form:
        case "bytes":
            return [row.tobytes() for row in rows]
        case "base64":
            return [pybase64.b64encode(row.tobytes()) for row in rows]
        case "nested":
            return [_plain(orjson.dumps(row.reshape(hole.shape), option=NUMPY)) for row in rows]
        case "list" if rows.shape[1] > SHORT_ROW:
            is_plain = np.all(plain_mask(rows), axis=1)
            return [
                orjson.dumps(row, option=NUMPY)[1:-1] if plain else None
                for row, plain in zip(rows, is_plain, strict=True)
            ]
        case "list":
            text = orjson.dumps(rows, option=NUMPY)[2:-2]
            if _plain(text) is not None:
                return text.split(b"],[")
            return [_plain(part) for part in text.split(b"],[")]


def _plain(text: bytes) -> bytes | None:
    """Return a text of numbers that orjson has written as the ordinary way writes them, ``None`` for another."""
    return None if AMBIGUOUS in text or NULL in text else text
