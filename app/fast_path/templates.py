"""Templates: everything about a request and its response that does not depend on the request's numbers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pybase64
from numpy.typing import NDArray

from app.fast_path.shared_calls import SharedCall
from app.runtime.modes import Key
from app.telemetry.counters import Counters
from app.tensors.dtypes import ROWS
from app.tensors.fast_json import FlatNumbers
from app.tensors.json import Shape
from app.tensors.layouts import Layout, Placeholder
from ops import Array

Columns: TypeAlias = list[FlatNumbers | Array]
# The most bytes of a body, and of the body of a response, besides the numbers.
MAX_TEXT = 1 << 12
# The bytes of a template without its texts and constants.
BARE = 2000


@dataclass(frozen=True)
class ResponseTemplate:
    """A response without its numbers: its layout, and the key of the result in each slot.

    ``head`` has the parts around the date, the length of the body, and the request id, in this order. With
    ``is_for_finite``, it is the response to finite results only.
    """

    head: tuple[bytes, bytes, bytes, bytes]
    layout: Layout
    keys: tuple[Key, ...]
    is_for_finite: bool

    def bodies(self, rows: Sequence[NDArray[Any]]) -> list[bytes | None]:
        """Return the bodies for several requests, whose results with each key are the rows of an array.

        ``None`` stands for a response of another layout.
        """
        contents = list(map(Placeholder.contents, self.layout.placeholders, rows))
        bodies: list[bytes | None] = list(map(self.layout.fill, zip(*contents, strict=True)))
        if self.is_for_finite:
            is_finite = np.all([np.isfinite(part).all(axis=1) for part in rows], axis=0)
            bodies = [body if finite else None for body, finite in zip(bodies, is_finite, strict=True)]
        return bodies


class Range(NamedTuple):
    """The bytes of a tensor in a body, or its base64 text."""

    start: int
    stop: int
    is_base64: bool


@dataclass(frozen=True, eq=False)
class RunReader:
    """Reads bodies in JSON, whose numbers are in runs.

    ``skeleton`` is the body without them, and ``shapes`` are those of the runs. A leaf is a part of all numbers of the
    body, or a tensor that the skeleton has. The numbers must be in the range of
    ``dtype``.
    """

    skeleton: bytes
    shapes: tuple[Shape, ...]
    leaves: tuple[slice | Array, ...]
    dtype: np.dtype[Any]

    @property
    def weight(self) -> int:
        """The bytes of memory that the reader takes, about."""
        return len(self.skeleton) + _bytes_of(self.leaves)

    def columns(self, numbers: FlatNumbers) -> Columns | None:
        """Return the leaves for the numbers of a body; ``None`` if a number may overflow the dtype."""
        if self.dtype != np.float64:
            row = ROWS[self.dtype]
            # Python's min and max would take an array apart, number by number.
            bounds = (numbers.min(), numbers.max()) if isinstance(numbers, np.ndarray) else (min(numbers), max(numbers))
            if not (row.low < bounds[0] and bounds[1] < row.high):
                return None
        leaves: Columns = []
        for leaf in self.leaves:
            leaves.append(numbers[leaf] if isinstance(leaf, slice) else leaf)
        return leaves


@dataclass(frozen=True, eq=False)
class RangeReader:
    """Reads bodies whose tensors are ranges of bytes, with ``around`` them the bytes that do not change.

    A leaf is the number of a range, or a tensor that the other bytes have.
    """

    leaves: tuple[int | Array, ...]
    ranges: tuple[Range, ...]
    around: tuple[bytes, ...]
    dtype: np.dtype[Any]

    @property
    def weight(self) -> int:
        """The bytes of memory that the reader takes, about."""
        return sum(map(len, self.around)) + _bytes_of(self.leaves)

    def matches(self, body: bytes) -> bool:
        """Return whether a body of the same length differs from the template in its ranges only."""
        starts = (0, *(place.stop for place in self.ranges))
        return all(map(body.startswith, self.around, starts))

    def columns(self, body: bytes) -> Columns | None:
        """Return the leaves in a body; ``None`` if the text of one is not base64 of such tensors."""
        tensors, dtype = list[Array](), self.dtype
        for start, stop, is_base64 in self.ranges:
            if not is_base64:
                tensors.append(np.frombuffer(body, dtype, (stop - start) // dtype.itemsize, start))
                continue
            try:
                tensors.append(np.frombuffer(pybase64.b64decode(body[start:stop], validate=True), dtype))
            except ValueError:
                return None
        return [tensors[leaf] if isinstance(leaf, int) else leaf for leaf in self.leaves]


@dataclass(frozen=True, eq=False)
class Template:
    """A request without its numbers: what reads its body, what computes its response, the response, who counts it.

    All tensors of the request have ``size`` numbers. ``parse_counters`` count the time of reading.
    """

    reader: RunReader | RangeReader
    call: SharedCall
    size: int
    response: ResponseTemplate
    counters: Counters
    parse_counters: Counters

    @property
    def weight(self) -> int:
        """The bytes of memory that the template takes, about."""
        return BARE + self.reader.weight + sum(map(len, (*self.response.head, *self.response.layout.constants)))


def _bytes_of(leaves: Iterable[object]) -> int:
    return sum(leaf.nbytes for leaf in leaves if isinstance(leaf, np.ndarray))
