"""The table of dtypes: one row each, with its name in every format and its range."""

import math
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
    """A dtype: its names, its NumPy dtype in the machine's byte order (``numpy``) and little-endian (``wire``).

    ``text`` is a dtype that orjson can write, and that has all its numbers. ``name`` is its name in JSON
    and in NumPy, ``safetensors`` its name in a safetensors header, and ``datatype`` its name in the Open Inference
    Protocol.

    Integers, and the bytes of a bool, range from ``low`` to ``high`` inclusive. Floats lie strictly between ``low`` and
    ``high``: the first magnitudes that round to infinity, which are the largest number plus half a unit in the last
    place. If ``is_bool``, the elements are true or false, not numbers. If ``rounds_once``, NumPy rounds a Python float
    to the dtype in one step: to nearest, ties to even; otherwise it goes through float32.
    A complex number has two numbers of the dtype ``part``, and no name in formats that lack it.
    """

    name: str
    safetensors: str
    datatype: str
    numpy: np.dtype[Any]
    wire: np.dtype[Any]
    text: np.dtype[Any]
    is_float: bool
    low: float
    high: float

    is_bool: bool = False
    rounds_once: bool = False
    part: str = ""

    @property
    def itemsize(self) -> int:
        """The bytes of one element."""
        return self.numpy.itemsize


def _float(name: str, safetensors: str, datatype: str, scalar: type[np.generic], first_infinite: float) -> DType:
    dtype: np.dtype[Any] = np.dtype(scalar)
    wire, text = dtype.newbyteorder("<"), np.dtype(np.float64 if name == "float64" else np.float32)
    # NumPy converts to floats that are not its own through float32.
    rounds_once = issubclass(scalar, np.floating)
    names, low, high = (name, safetensors, datatype), -first_infinite, first_infinite
    return DType(*names, dtype, wire, text, is_float=True, low=low, high=high, rounds_once=rounds_once)


def _integer(name: str, safetensors: str, datatype: str) -> DType:
    dtype: np.dtype[Any] = np.dtype(name)
    names, wire, info = (name, safetensors, datatype), dtype.newbyteorder("<"), np.iinfo(dtype)
    return DType(*names, dtype, wire, dtype, is_float=False, low=int(info.min), high=int(info.max))


def _complex(name: str, safetensors: str, part: str) -> DType:
    dtype: np.dtype[Any] = np.dtype(name)
    names, wire, text = (name, safetensors, ""), dtype.newbyteorder("<"), np.dtype(part)
    return DType(*names, dtype, wire, text, is_float=False, low=-math.inf, high=math.inf, part=part)


_BOOL = np.dtype(np.bool_)
_TABLE = (
    _float("float16", "F16", "FP16", np.float16, 2.0**16 - 2.0**4),
    _float("bfloat16", "BF16", "BF16", ml_dtypes.bfloat16, 2.0**128 - 2.0**119),
    _float("float32", "F32", "FP32", np.float32, 2.0**128 - 2.0**103),
    _float("float64", "F64", "FP64", np.float64, float("inf")),
    _integer("int8", "I8", "INT8"),
    _integer("int16", "I16", "INT16"),
    _integer("int32", "I32", "INT32"),
    _integer("int64", "I64", "INT64"),
    _integer("uint8", "U8", "UINT8"),
    _integer("uint16", "U16", "UINT16"),
    _integer("uint32", "U32", "UINT32"),
    _integer("uint64", "U64", "UINT64"),
    DType("bool", "BOOL", "BOOL", _BOOL, _BOOL, _BOOL, is_float=False, low=0, high=1, is_bool=True),
)

DTYPES: Mapping[str, DType] = {row.name: row for row in _TABLE}
"""The rows of real numbers and bools by name."""
COMPLEX: Mapping[str, DType] = {
    row.name: row for row in (_complex("complex64", "C64", "float32"), _complex("complex128", "", "float64"))
}
"""The rows of complex numbers by name."""
ROWS: Mapping[np.dtype[Any], DType] = {row.numpy: row for row in (*_TABLE, *COMPLEX.values())}
"""The rows by NumPy dtype in the machine's byte order."""


def of(dtype: np.dtype[Any]) -> DType:
    """Return the row of a NumPy dtype in either byte order.

    Raises ``TypeError`` for a dtype that is not in the table (object, ...).
    """
    row = ROWS.get(dtype) or ROWS.get(dtype.newbyteorder("="))
    if row is None:
        raise TypeError(f"expected a tensor of {', '.join([*DTYPES, *COMPLEX])}, got {dtype.name}")
    return row
