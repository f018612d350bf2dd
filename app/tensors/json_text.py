"""The JSON text of arrays: each number in the shortest text that reads back exactly.

JSON has no NaN and no infinity: these are the strings "NaN", "Infinity" and "-Infinity".
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from app.tensors.casting import NONFINITE

# The nearest float64 to the shortest text of this float32, 7.038531e-26, is a tie between two float32, which rounds to
# the other one, so a reader that goes through float64 gets a neighbour. It needs more digits. It is the only such
# number: all 2^31 were tried.
_AMBIGUOUS = float(np.uint32(0x15AE43FD).view(np.float32))
_AMBIGUOUS_TEXT, _NULL = b"7.038531e-26", b"null"
_SHORT = 64
# The most numbers that are written in one call: 10^6 take tens of milliseconds, in which no other thread could run.
_PART = 1 << 16
_NUMPY = orjson.OPT_SERIALIZE_NUMPY


def text(array: NDArray[Any]) -> bytes:
    """Return an array of a dtype that orjson supports as a number or nested lists; a large one is written in parts."""
    if array.size <= _SHORT and array.ndim:
        written = orjson.dumps(array, option=_NUMPY)
        return written if _NULL not in written and _AMBIGUOUS_TEXT not in written else _with_strings(array)
    if array.size <= _PART:
        if array.dtype.kind == "f" and not _plain_mask(array).all():
            return _with_strings(array)
        return orjson.dumps(array if array.ndim else array[()], option=_NUMPY)  # no arrays of rank 0 in orjson
    row = array.size // len(array)
    if row > _PART:
        return b"[%b]" % b",".join(map(text, array))
    step = _PART // row
    return b"[%b]" % b",".join(text(array[start : start + step])[1:-1] for start in range(0, len(array), step))


def texts(rows: NDArray[Any]) -> Sequence[bytes]:
    """Return the numbers of each row, separated by commas, as ``text`` writes them."""
    if rows.shape[1] > _SHORT:
        # To search the text of long rows takes longer than to write each.
        return [text(row)[1:-1] for row in rows]
    together = orjson.dumps(rows, option=_NUMPY)
    parts = together[2:-2].split(b"],[")
    if _AMBIGUOUS_TEXT in together or _NULL in together:
        parts = [
            text(row)[1:-1] if _AMBIGUOUS_TEXT in part or _NULL in part else part
            for part, row in zip(parts, rows, strict=True)
        ]
    return parts


def _plain_mask(array: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which of these floats orjson writes correctly."""
    plain = np.isfinite(array)
    return plain & (np.abs(array) != np.float32(_AMBIGUOUS)) if array.dtype == np.float32 else plain


def _with_strings(array: NDArray[Any]) -> bytes:
    """Return an array with numbers that orjson does not write correctly, with strings for NaN and the infinities.

    Other numbers go through orjson and back, so that a float32 keeps its short text.
    """
    plain = _plain_mask(array)
    short = orjson.dumps(np.where(plain, array, array.dtype.type(0)).reshape(-1), option=_NUMPY)
    items = np.array(orjson.loads(short), object).reshape(array.shape)
    for name, value in NONFINITE.items():
        items[np.isnan(array) if math.isnan(value) else array == value] = name
    ambiguous = np.isfinite(array) & ~plain
    items[ambiguous] = array[ambiguous].astype(np.float64)
    return orjson.dumps(items.tolist())
