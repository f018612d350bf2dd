"""The sparsity of a derivative: where it may have nonzeros, and the products from which these are recovered."""

import hashlib
import math
from collections.abc import Generator, Hashable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.autodiff.absent import Absent
from app.autodiff.coloring import Index, ManyColors, distance_two, star
from app.errors import Unprocessable, wrong
from app.runtime.cancellation import Checkpoint

Shapes: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]
"""Slots with their shapes, in order."""
Kind: TypeAlias = Literal["rows", "columns", "star"]
# The digits of the name of a sparsity.
DIGITS = 32


class Subject(NamedTuple):
    """What a pattern is of: the derivative of an op, of order 1 for a Jacobian and 2 for a Hessian.

    ``static`` are the static attributes of the op. The rows of the matrix are the numbers of the slots ``rows``, with
    their shapes, its columns those of ``columns``.
    """

    op: str
    static: tuple[tuple[str, Any], ...]
    order: int
    rows: Shapes
    columns: Shapes

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows and of columns."""
        return size(self.rows), size(self.columns)


@dataclass(frozen=True, eq=False)
class Pattern:
    """Where a matrix may have nonzeros.

    ``row`` and ``column`` are those of each nonzero, sorted by row and then column, each once. ``absent`` has the
    blocks, by their slots, that are missing, and why.
    """

    of: Subject
    row: Index
    column: Index
    absent: Mapping[tuple[str, str], Absent]

    @cached_property
    def digest(self) -> str:
        """The name of the pattern, by its contents."""
        about = repr(tuple(self.of)).encode()
        wide = (x.astype("<i8").tobytes() for x in (self.row, self.column))
        return hashlib.sha256(b"\0".join((about, *wide))).hexdigest()[:DIGITS]

    @property
    def is_full(self) -> bool:
        """Whether every number of the matrix may be a nonzero."""
        return len(self.row) == self.of.shape[0] * self.of.shape[1]

    @property
    def places(self) -> Index:
        """The places of the nonzeros in the matrix, in row-major order."""
        return self.row * max(1, self.of.shape[1]) + self.column

    @property
    def is_symmetric(self) -> bool:
        """Whether the transposed matrix has the same pattern."""
        if self.of.rows != self.of.columns:
            return False
        order = np.lexsort((self.row, self.column))
        return np.array_equal(self.row, self.column[order]) and np.array_equal(self.column, self.row[order])

    def joined(self, other: "Pattern") -> "Pattern":
        """Return the pattern of the nonzeros of both, which have the same slots."""
        row, column = (np.concatenate(pair) for pair in ((self.row, other.row), (self.column, other.column)))
        return pattern(self.of, row, column, {**self.absent, **other.absent})


def pattern(of: Subject, row: Index, column: Index, absent: Mapping[tuple[str, str], Absent]) -> Pattern:
    """Return the pattern of nonzeros in any order, some of them perhaps more than once."""
    width = max(1, of.shape[1])
    # Not np.unique: it holds the interpreter's lock for many times as long as it takes to sort.
    places = np.sort(row.astype(np.intp) * width + column)
    row, column = np.divmod(places[np.append(True, places[1:] != places[:-1])[: len(places)]], width)
    return Pattern(of, row, column, absent)


@dataclass(frozen=True, eq=False)
class Sparsity:
    """A pattern with a coloring of it, or of a ``wider`` one.

    ``colors`` has the color of each row, or of each column for a coloring of ``columns``. A product with the sum of the
    unit directions of one color is a line of the compressed matrix: that of ``color``, at the position ``at``, has each
    nonzero of the wider pattern. These must be zero outside of ``pattern``. ``use`` is that of the matrices which have
    no nonzero outside of the wider pattern at any point, ``None`` if that is not known.
    """

    pattern: Pattern
    wider: Pattern
    kind: Kind
    colors: Index
    color: Index
    at: Index
    use: Hashable = None

    @cached_property
    def inside(self) -> NDArray[np.bool_] | None:
        """Which nonzeros of the wider pattern are in the pattern, ``None`` for all of them."""
        if self.pattern is self.wider:
            return None
        inside = np.zeros(len(self.wider.row), np.bool_)
        inside[np.searchsorted(self.wider.places, self.pattern.places)] = True
        return inside

    @property
    def products(self) -> int:
        """The number of products from which the nonzeros are recovered."""
        return int(self.colors.max()) + 1 if self.color.size else 0

    @property
    def bytes(self) -> int:
        """The memory that it takes."""
        patterns = {self.pattern, self.wider}
        own = sum(x.nbytes for x in (self.colors, self.color, self.at))
        return own + sum(each.row.nbytes + each.column.nbytes for each in patterns)


def covered(pattern: Pattern, other: Pattern, checkpoint: Checkpoint, *, has_columns: bool) -> Sparsity:
    """Return a pattern with a coloring of the nonzeros of both; raises as ``colored``."""
    joined = pattern.joined(other)
    if len(joined.row) == len(pattern.row):
        return colored(pattern, checkpoint, has_columns=has_columns)
    return replace(colored(joined, checkpoint, has_columns=has_columns), pattern=pattern)


def colored(pattern: Pattern, checkpoint: Checkpoint, *, has_columns: bool) -> Sparsity:
    """Return a pattern with the coloring of its rows or, if the matrix ``has_columns``, of its columns if it has fewer.

    A Hessian whose pattern is symmetric has a star coloring. Raises ``Unprocessable`` where each has too many colors.
    """
    row, column, rows = pattern.row, pattern.column, pattern.of.shape[0]
    if pattern.of.order > 1 and pattern.is_symmetric:
        with _few_colors(pattern):
            return _of_star(pattern, star(row, column, rows, checkpoint))
    if not has_columns:
        return by_rows(pattern, checkpoint)
    found = list[Sparsity]()
    with suppress(Unprocessable):
        found.append(by_rows(pattern, checkpoint))
        # No coloring of the columns has fewer colors than a row has nonzeros.
        if found[0].products <= np.bincount(row, minlength=1).max(initial=0):
            return found[0]
    with suppress(Unprocessable) if found else nullcontext():
        found.append(_by_columns(pattern, checkpoint))
    return min(found, key=lambda each: each.products)


def by_rows(pattern: Pattern, checkpoint: Checkpoint) -> Sparsity:
    """Return a pattern with a coloring of its rows; raises ``Unprocessable`` where it has too many colors."""
    with _few_colors(pattern):
        colors = distance_two(pattern.row, pattern.column, *pattern.of.shape, checkpoint)
    return Sparsity(pattern, pattern, "rows", colors, colors[pattern.row], pattern.column)


def _by_columns(pattern: Pattern, checkpoint: Checkpoint) -> Sparsity:
    row, column, (rows, columns) = pattern.row, pattern.column, pattern.of.shape
    order = np.lexsort((row, column))
    with _few_colors(pattern):
        colors = distance_two(column[order], row[order], columns, rows, checkpoint)
    return Sparsity(pattern, pattern, "columns", colors, colors[column], row)


@contextmanager
def _few_colors(pattern: Pattern) -> Generator[None]:
    """Raise ``Unprocessable`` where a coloring in this block has too many colors."""
    try:
        yield
    except ManyColors:
        message = "the rows, or columns, with a common nonzero are too many; request products, or a part (wrt, of)"
        expected, got = "dense rows or dense columns, not both", f"{len(pattern.row)} nonzeros in {pattern.of.shape}"
        raise wrong(("sparse",), message, expected=expected, got=got) from None


def _of_star(pattern: Pattern, colors: Index) -> Sparsity:
    """Return where each nonzero is alone in the compressed matrix: at its own place, or at that of its transpose."""
    row, column = pattern.row, pattern.column
    place = colors[row] * len(colors) + column
    order = np.argsort(place, kind="stable")
    is_first = np.append(True, np.diff(place[order]) != 0)[: len(place)]
    is_alone = np.empty(len(place), np.bool_)
    is_alone[order] = is_first & np.append(is_first[1:], True)[: len(place)]
    color, at = np.where(is_alone, colors[row], colors[column]), np.where(is_alone, column, row)
    return Sparsity(pattern, pattern, "star", colors, color, at)


def size(shapes: Shapes) -> int:
    """Return how many numbers slots of these shapes have."""
    return sum(math.prod(shape) for _, shape in shapes)


def parts(shapes: Shapes) -> Iterator[tuple[str, int, int]]:
    """Yield each slot, and where its numbers begin and end."""
    begin = 0
    for name, shape in shapes:
        end = begin + math.prod(shape)
        yield name, begin, end
        begin = end
