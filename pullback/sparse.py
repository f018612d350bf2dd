"""Sparse blocks of answers: matrices of SciPy where it is installed, else their arrays."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from pullback.arrays import decode
from pullback.dtypes import Array


@dataclass(frozen=True, eq=False)
class SparseBlock:
    """A sparse matrix, where SciPy is not installed; its nonzeros are sorted by row, then column.

    ``data`` has their numbers, ``columns`` their columns, and ``rows`` their rows or, in compressed rows, ``indptr``
    where each row begins and ends.
    """

    shape: tuple[int, int]
    data: Array
    columns: Array
    rows: Array | None = None
    indptr: Array | None = None


def block(document: Mapping[str, Any]) -> Any:
    """Return the block of an answer: a ``coo_array`` or ``csr_array`` of SciPy, or a ``SparseBlock``."""
    rows, columns = map(int, document["shape"])
    parts: dict[str, Array] = {name: _array(x) for name, x in document.items() if name != "shape"}
    shape, data, column = (rows, columns), parts["values"], parts["columns"]
    try:
        from scipy import sparse  # noqa: PLC0415 - the client works without SciPy
    except ImportError:
        return SparseBlock(shape, data, column, parts.get("rows"), parts.get("indptr"))
    if "rows" in parts:
        return sparse.coo_array((data, (parts["rows"], column)), shape=shape)
    return sparse.csr_array((data, column, parts["indptr"]), shape=shape)


def parts_of(value: Any) -> Mapping[str, Any] | None:
    """Return the arrays of a sparse block by their names in an answer; ``None`` for any other value."""
    if isinstance(value, SparseBlock):
        index = {"rows": value.rows} if value.indptr is None else {"indptr": value.indptr}
        return {"shape": np.array(value.shape), **index, "columns": value.columns, "values": value.data}
    form = getattr(value, "format", None)
    if form not in ("coo", "csr"):
        return None
    index = (
        {"rows": value.row, "columns": value.col}
        if form == "coo"
        else {
            "indptr": value.indptr,
            "columns": value.indices,
        }
    )
    return {"shape": np.array(value.shape), **index, "values": value.data}


def _array(value: Any) -> Array:
    return cast(Array, value) if isinstance(value, np.ndarray) else decode(value)
