"""The sparsity of a derivative that follows from the page of an op."""

import numpy as np

from app.autodiff.coloring import Index
from app.autodiff.sparse_matrices import Matrix
from app.autodiff.sparsity import Pattern, parts


def of_elementwise(matrix: Matrix) -> Pattern | None:
    """Return the pattern of an elementwise op, whose blocks are diagonals; ``None`` for any other op."""
    rows, columns = [*parts(matrix.of.rows)], [*parts(matrix.of.columns)]
    if matrix.point.spec.batching != "elementwise" or not rows or not columns:
        return None
    every = np.arange(rows[0][2])
    found: list[tuple[Index, Index]] = [(every + top, every + left) for _, top, _ in rows for _, left, _ in columns]
    row, column = (np.concatenate(each) for each in zip(*found, strict=True))
    return matrix.pattern(row, column)
