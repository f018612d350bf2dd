"""Find the sparsity of a derivative whose op declares none: mark directions, and see which numbers they reach.

A direction that is NaN at some rows makes NaN of each column that depends on one of them: TensorFlow's kernels
propagate the mark through every path, also where a factor is zero at this point. Rows are searched in blocks. Blocks
that have no column in common are marked together, and each is divided until it is one row, so a band or a stencil of
n rows takes a small multiple of log n products (Griewank and Mitev, "Detecting Jacobian sparsity patterns by Bayesian
probing", 2002). Where the mark passes everything, as in a product of matrices, random numbers take its place: they
find what is not zero at this point.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from app.autodiff.all_branches import UnknownBranches
from app.autodiff.coloring import Index, ManyColors, distance_two
from app.autodiff.point import blame_op
from app.autodiff.sparse_matrices import Floats, Matrix
from app.autodiff.sparsity import Pattern, parts
from app.errors import OpFailed, Unprocessable, wrong
from app.runtime.cancellation import Checkpoint

Pairs: TypeAlias = tuple[Index, Index]
"""The row, or the block of rows, and the column of each nonzero."""
Marks: TypeAlias = NDArray[np.bool_]
Multiply: TypeAlias = Callable[[Floats], Floats]

# Into how many parts a block is divided.
PARTS = 4
# With more products at once, the search looks at the columns instead, and else at each row.
FEW = 64


def find(matrix: Matrix, checkpoint: Checkpoint) -> Pattern:
    """Return where a matrix may have nonzeros at this point.

    Raises ``Unprocessable`` if they are too many, or not finite.
    """
    if not all(matrix.shape):
        return matrix.pattern(np.zeros(0, np.intp), np.zeros(0, np.intp))
    try:
        marked = _marked(matrix, checkpoint)
    except (Unprocessable, OpFailed):
        marked = None
    return matrix.pattern(*(marked or _Search(matrix, None, checkpoint).pairs()))


def find_in_all_branches(matrix: Matrix, checkpoint: Checkpoint) -> Pattern | None:
    """Return where a matrix of this use may have nonzeros at any point, ``None`` if that is not known, or most of it.

    Raises ``Unprocessable`` if they are too many, or not finite here, and ``OpFailed``.
    """
    if not all(matrix.shape):
        return find(matrix, checkpoint)
    try:
        marked = _marked(matrix.all_branches, checkpoint)
    except UnknownBranches:
        return None
    return marked and matrix.pattern(*marked)


def _marked(matrix: Matrix, checkpoint: Checkpoint) -> Pairs | None:
    """Return the nonzeros that NaN finds, ``None`` where it passes almost everything; raises as ``_Search.pairs``."""
    try:
        found = _Search(matrix, np.nan, checkpoint).pairs()
    except _TooMany:
        return None
    return found if 2 * len(found[0]) < matrix.shape[0] * matrix.shape[1] else None


class _TooMany(Exception):
    """Too many blocks have a column in common; ``are_most`` is whether most blocks have most columns."""

    def __init__(self, pairs: int, all_pairs: int) -> None:
        """Take how many pairs of a block and a column there are, and how many there could be."""
        super().__init__()
        self.are_most = 2 * pairs > all_pairs


class _Search:
    """A search with one kind of mark: a ``value``, or ``None`` for random numbers."""

    def __init__(self, matrix: Matrix, value: float | None, checkpoint: Checkpoint) -> None:
        self._matrix, self._value, self._checkpoint = matrix, value, checkpoint
        self._rng = np.random.default_rng()

    def pairs(self) -> Pairs:
        """Return the nonzeros, from few products of rows or of columns if possible.

        Raises ``_TooMany`` where a mark passes almost everything.
        """
        matrix = self._matrix
        rows, columns = matrix.shape
        if self._marked(matrix.left(np.zeros((1, rows)))).any():
            message = f"the {matrix.name} is not finite here, so that its nonzeros cannot be found"
            raise wrong(("inputs",), message, expected="finite derivatives", got="NaN or Infinity")
        try:
            return self._of_lines(matrix.left, rows, columns, FEW)
        except _TooMany as error:
            many = error
        if matrix.push is not None:
            try:
                column, row = self._of_lines(matrix.right, columns, rows, FEW)
                return row, column
            except _TooMany as error:
                many = error
        if self._value is not None and many.are_most:
            raise many
        return self._of_lines(matrix.left, rows, columns, None)

    def _of_lines(self, multiply: Multiply, lines: int, others: int, most: int | None) -> Pairs:
        """Return each line with the others that depend on it; raise ``_TooMany`` where that takes more products."""
        if lines <= PARTS:
            return self._each_line(multiply, lines)
        left, block = np.arange(lines), np.zeros(lines, np.intp)
        pairs = np.zeros(others, np.intp), np.arange(others)
        while True:
            ids, first, block, sizes = np.unique(block, return_index=True, return_inverse=True, return_counts=True)
            pairs = np.searchsorted(ids, pairs[0]), pairs[1]
            if sizes.max(initial=0) <= 1:
                return left[first[pairs[0]]], pairs[1]
            colors = self._colors(pairs, len(ids), others)
            products = lines if colors is None else PARTS * (int(colors.max()) + 1)
            if most is not None and products > most:
                raise _TooMany(len(pairs[0]), len(ids) * others)
            if colors is None or products >= lines:
                return self._each_line(multiply, lines)
            part = (np.arange(len(left)) - first[block]) * PARTS // sizes[block]
            marked = self._products(multiply, colors[block] * PARTS + part, left, lines, products)
            pairs = self._divided(marked, pairs, colors)
            block = block * PARTS + part
            is_used = np.searchsorted(pairs[0], block, "right") > np.searchsorted(pairs[0], block)
            left, block = left[is_used], block[is_used]

    def _colors(self, pairs: Pairs, blocks: int, others: int) -> Index | None:
        """Return the colors of the blocks, ``None`` if they are too many."""
        try:
            return distance_two(*pairs, blocks, others, self._checkpoint)
        except ManyColors:
            return None

    def _each_line(self, multiply: Multiply, lines: int) -> Pairs:
        every = np.arange(lines)
        found = list[Pairs]()
        for start, _, marks in self._products(multiply, every, every, lines, lines):
            line, other = np.nonzero(marks)
            found.append((line + start, other))
        return self._joined(found)

    def _products(
        self, multiply: Multiply, product: Index, chosen: Index, lines: int, products: int
    ) -> Iterator[tuple[int, int, Marks]]:
        """Yield the first of some products, the end of them, and what they mark; each chosen line is in its own."""
        self._matrix.point.admit_work(products)
        step = self._matrix.per_call
        for start in range(0, products, step):
            self._checkpoint()
            stop = min(products, start + step)
            here = (product >= start) & (product < stop)
            given = np.zeros((stop - start, lines))
            given[product[here] - start, chosen[here]] = self._marks(int(here.sum()))
            yield start, stop, self._marked(multiply(given))

    def _divided(self, marked: Iterator[tuple[int, int, Marks]], pairs: Pairs, colors: Index) -> Pairs:
        """Return the pairs of the parts of blocks, from the pairs of these blocks."""
        (block, other), found = pairs, list[Pairs]()
        for start, stop, marks in marked:
            for part in range(PARTS):
                product = colors[block] * PARTS + part
                here = np.flatnonzero((product >= start) & (product < stop))
                here = here[marks[product[here] - start, other[here]]]
                found.append((block[here] * PARTS + part, other[here]))
        return self._joined(found)

    def _joined(self, found: Sequence[Pairs]) -> Pairs:
        """Return all pairs by their lines; raise ``Unprocessable`` if they are too many."""
        self._matrix.point.admit(sum(len(line) for line, _ in found), f"nonzeros of the {self._matrix.name}")
        line, other = (np.concatenate(each) for each in zip(*found, strict=True))
        order = np.argsort(line, kind="stable")
        return line[order], other[order]

    def _marks(self, count: int) -> float | Floats:
        if self._value is not None:
            return self._value
        return self._rng.uniform(0.5, 1, count) * self._rng.choice((-1.0, 1.0), count)

    def _marked(self, results: Floats) -> Marks:
        """Return which results a mark has reached."""
        return results != 0 if self._value is None else ~np.isfinite(results)


def declared(matrix: Matrix) -> Pattern | None:
    """Return the pattern of a Jacobian that the op declares, ``None`` if it declares none.

    Raises ``OpFailed`` for a declaration that is not one of this Jacobian.
    """
    op, point = matrix.point.op, matrix.point
    if op.sparsity is None or matrix.of.order > 1:
        return None
    with blame_op(op, "sparsity"):
        blocks = op.sparsity(point.dims)
        known = {y.name for y in op.outputs}, {x.name for x in op.inputs}
        for names, every in zip(({*blocks}, {x for named in blocks.values() for x in named}), known, strict=True):
            if not names <= every:
                raise ValueError(f"expected some of {', '.join(sorted(every))}, got {', '.join(sorted(names))}")
        row, column = _nonzeros(matrix, blocks)
    # Outside the block: it runs the op.
    return matrix.pattern(row, column)


def _nonzeros(matrix: Matrix, blocks: Mapping[str, Mapping[str, Any]]) -> tuple[Index, Index]:
    """Return the rows and columns of nonzeros in the matrix; raise ``ValueError`` for numbers outside their blocks."""
    found: list[tuple[Index, Index]] = [(np.zeros(0, np.intp), np.zeros(0, np.intp))]
    for y, top, bottom in parts(matrix.of.rows):
        for x, left, right in parts(matrix.of.columns):
            if (pair := blocks.get(y, {}).get(x)) is not None:
                row, column = (np.asarray(each).reshape(-1) for each in cast(tuple[Any, Any], pair))
                if row.size or column.size:
                    if row.size != column.size:
                        raise ValueError(f"{y} by {x}: expected as many columns as rows, {row.size}, got {column.size}")
                    # Refuses numbers that are not integers, and those outside the block.
                    np.ravel_multi_index((row, column), (bottom - top, right - left))
                    found.append((row.astype(np.intp) + top, column.astype(np.intp) + left))
    row, column = (np.concatenate(each) for each in zip(*found, strict=True))
    return row, column


def of_elementwise(matrix: Matrix) -> Pattern | None:
    """Return the pattern of an elementwise op, whose blocks are diagonals; ``None`` for any other op."""
    rows, columns = [*parts(matrix.of.rows)], [*parts(matrix.of.columns)]
    if matrix.point.spec.batching != "elementwise" or not rows or not columns:
        return None
    every = np.arange(rows[0][2])
    found: list[tuple[Index, Index]] = [(every + top, every + left) for _, top, _ in rows for _, left, _ in columns]
    row, column = (np.concatenate(each) for each in zip(*found, strict=True))
    return matrix.pattern(row, column)
