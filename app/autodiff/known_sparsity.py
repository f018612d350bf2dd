"""The sparsity of a derivative that follows from the page of an op."""

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from app.autodiff.coloring import Index
from app.autodiff.point import blame_op
from app.autodiff.sparse_matrices import Matrix
from app.autodiff.sparsity import Pattern, parts


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
