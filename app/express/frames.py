"""Frames: what the ordinary way made of a request, with the numbers left out of the request and of its response."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import orjson
import pybase64
from numpy.typing import NDArray

from app.express.bodies import Numbers, Range, Shape, read_range
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
    """The place of a result in a response: its key, its shape, and how its numbers are written.

    Each is converted to ``dtype`` first, which may be wider than that of the result, and then has other digits.
    """

    key: Key
    form: Form
    shape: Shape
    dtype: np.dtype[Any]


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

    ``text`` is the body without them, and ``shapes`` are those of the lists. A leaf is a part of all numbers of the
    body, or a tensor that is the same in all requests, such as the cotangent of a request without one. The numbers must
    be between ``low`` and ``high``.
    """

    text: bytes
    shapes: tuple[Shape, ...]
    leaves: tuple[slice | Array, ...]
    low: float
    high: float

    @property
    def key(self) -> tuple[bytes, tuple[Shape, ...]]:
        """What a body must have to belong to the frame."""
        return self.text, self.shapes

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
    if hole.form == "bytes":
        return [row.tobytes() for row in rows]
    if hole.form == "base64":
        return [pybase64.b64encode(row.tobytes()) for row in rows]
    numbers, shape = rows.astype(hole.dtype, copy=False), hole.shape if hole.form == "nested" else rows.shape[1:]
    end = 1 if hole.form == "list" else 0
    if rows.shape[1] <= SHORT_ROW and hole.form == "list":
        text = orjson.dumps(numbers, option=NUMPY)[2:-2]
        return [_plain(part) for part in text.split(b"],[")] if _plain(text) is None else text.split(b"],[")
    is_plain = np.all(plain_mask(numbers), axis=1)
    return [
        orjson.dumps(row.reshape(shape), option=NUMPY)[end : -end or None] if plain else None
        for row, plain in zip(numbers, is_plain, strict=True)
    ]


def _plain(text: bytes) -> bytes | None:
    """Return a text of numbers that orjson has written as the ordinary way writes them, ``None`` for another."""
    return None if AMBIGUOUS in text or NULL in text else text
