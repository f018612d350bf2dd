"""The one table of dtypes: their names in every document, and what the formats need to know of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

MAX_RANK = 8
MAX_DIMENSION = (1 << 31) - 1
MAX_BYTES = (1 << 63) - 1


@dataclass(frozen=True)
class DType:
    """A dtype: its name, its NumPy dtype in the machine's byte order and its NumPy dtype on the wire, little-endian.

    Integers run from ``low`` to ``high``, both included, and so do the bytes of a bool. A float type holds what lies
    strictly between ``low`` and ``high``, which are not its largest numbers but the first that round to infinity: its
    largest plus half a unit in the last place. The elements of one that ``is_bool`` are true or false, and not numbers.
    NumPy rounds Python's floats to one that ``rounds_once`` in one step, to nearest, ties to even.
    """

    name: str
    numpy: np.dtype[Any]
    wire: np.dtype[Any]
    is_float: bool
    low: float
    high: float

    is_bool: bool = False
    rounds_once: bool = False

    @property
    def itemsize(self) -> int:
        """The bytes of one element."""
        return self.numpy.itemsize


def _float(name: str, scalar: type[np.generic], first_infinite: float) -> DType:
    dtype: np.dtype[Any] = np.dtype(scalar)
    # NumPy reaches bfloat16 by way of float32.
    rounds_once = name != "bfloat16"
    return DType(name, dtype, dtype.newbyteorder("<"), True, -first_infinite, first_infinite, rounds_once=rounds_once)


def _integer(name: str) -> DType:
    dtype: np.dtype[Any] = np.dtype(name)
    info = np.iinfo(dtype)
    return DType(name, dtype, dtype.newbyteorder("<"), False, int(info.min), int(info.max))


_FLOATS = (
    _float("float16", np.float16, 2.0**16 - 2.0**4),
    _float("bfloat16", ml_dtypes.bfloat16, 2.0**128 - 2.0**119),
    _float("float32", np.float32, 2.0**128 - 2.0**103),
    _float("float64", np.float64, float("inf")),
)
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")

_BOOL = DType("bool", np.dtype(np.bool_), np.dtype(np.bool_), False, 0, 1, is_bool=True)

DTYPES: Mapping[str, DType] = {dtype.name: dtype for dtype in (*_FLOATS, *map(_integer, _INTEGERS), _BOOL)}


ROWS: Mapping[np.dtype[Any], DType] = {row.numpy: row for row in DTYPES.values()}
"""The rows by their NumPy dtype in the machine's byte order."""


def of(dtype: np.dtype[Any]) -> DType:
    """Return the row of a NumPy dtype, in whatever byte order.

    Raises ``TypeError`` when no format carries it (complex, object, ...).
    """
    row = ROWS.get(dtype) or ROWS.get(dtype.newbyteorder("="))
    if row is None:
        raise TypeError(f"expected a tensor of {', '.join(DTYPES)}, got {dtype.name}")
    return row
