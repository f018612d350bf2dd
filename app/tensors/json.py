"""Tensors in JSON.

In, any of these, below a name::

    0.5                                                         a number, or true or false: rank 0
    [[1, 2.5], ["NaN", "-Infinity"]]                            a nested list, of numbers or of bools
    {"dtype": "float32", "shape": [2, 2], "data": [1, 2, 3, 4]} typed; data flat, or nested exactly as shape
    {"dtype": "float32", "shape": [1], "base64": "AACAPw=="}    typed; little-endian, row-major

Out, the typed forms. Untyped numbers take the dtype asked for, by the rules of ``casting``; a typed tensor is never
cast.
"""

import binascii
import math
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, cast

import numpy as np
import orjson
import pybase64
from numpy.typing import NDArray

from app.errors import Loc, Unprocessable, wrong
from app.tensors import casting, dtypes
from app.tensors.casting import Numbers
from app.tensors.dtypes import DTYPES, MAX_BYTES, MAX_DIMENSION, MAX_RANK, DType
from app.tensors.strict_json import dumps, parse

__all__ = ["Encoding", "decode", "dumps", "encode", "parse", "read_shape", "refuse_cast"]

Encoding = Literal["nested", "flat", "base64"]
Shape = tuple[int, ...]

# The one float32 whose shortest text, 7.038531e-26, has as its nearest float64 a tie between two float32, and the tie
# goes to the other: whoever reads JSON by way of float64 gets a neighbour. (All 2^31 were tried.) It needs more digits.
_AMBIGUOUS = float(np.uint32(0x15AE43FD).view(np.float32))
_SHORT = 64

_KEYS = ("dtype", "shape", "data", "base64")


@dataclass(frozen=True, eq=False)
class Decoded:
    """A string of base64 that has been read: its bytes, and how many characters it had."""

    raw: bytes
    length: int


def decode(value: Any, dtype: str, loc: Loc) -> NDArray[Any]:
    """Return the tensor that ``value``, as ``parse`` gave it, stands for: C-contiguous, of exactly ``dtype``.

    The array may be read-only. Raises ``Unprocessable``, naming the element, for whatever is no number (for the dtype
    bool: no bool), is ragged, or does not fit the dtype or the tensor's own shape; ``KeyError`` for a ``dtype`` that is
    not in the table.
    """
    target = DTYPES[dtype]
    if isinstance(value, list):
        items = cast("list[Any]", value)
        # NumPy's reductions take longer to start than so few numbers take; a NaN or an infinity fails the test.
        is_short = 0 < len(items) <= _SHORT and casting.NUMBERS.issuperset(map(type, items))
        if is_short and target.rounds_once and max(items) < target.high and min(items) > target.low:
            return np.array(items, target.numpy)
    elif isinstance(value, dict):
        return _typed(cast("dict[str, Any]", value), target, loc)
    elif isinstance(value, Numbers):
        return _cast_numbers(value, target, loc)
    shape, flat, kinds = _flatten(value, target, loc)
    array = _cast(flat, kinds, target, shape, loc)
    return array if len(shape) == 1 else array.reshape(shape)


def encode(array: NDArray[Any], encoding: Encoding) -> dict[str, Any]:
    """Return the typed form of ``array``, of any shape and layout, for ``dumps``.

    Each number is the shortest text that gives it back; NaN and the infinities are strings.
    Raises ``TypeError`` for a dtype that is not in the table.
    """
    row = dtypes.ROWS.get(array.dtype) or dtypes.of(array.dtype)
    tensor: dict[str, Any] = {"dtype": row.name, "shape": list(array.shape)}
    if encoding == "base64":
        wire: NDArray[Any] = np.asarray(array, row.wire, order="C")
        tensor["base64"] = pybase64.b64encode_as_string(wire.reshape(-1).view(np.uint8).data)
    else:
        native = np.asarray(array, row.numpy, order="C")
        tensor["data"] = _data(native if encoding == "nested" else native.reshape(-1), row)
    return tensor


def refuse_cast(name: Any, target: DType, loc: Loc) -> None:
    """Refuse a typed tensor at ``loc`` whose dtype has another name than the one wanted."""
    if name != target.name:
        got = casting.describe(name)
        raise wrong((*loc, "dtype"), "typed tensors are not cast", expected=f'"{target.name}"', got=got)


def _data(array: NDArray[Any], row: DType) -> Any:
    if row.is_float:
        if row.name != "float64":  # the writer knows no bfloat16; it and float16 are exact in float32
            array = array.astype(np.float32, copy=False)
        if not _is_plain(array):
            return _spelled(array)
    return array[()] if array.ndim == 0 else array  # the writer knows no array of rank 0


def _is_plain(array: NDArray[Any]) -> bool:
    """Tell whether the writer writes each of these floats as it must be written."""
    if array.size <= _SHORT:  # NumPy takes longer to start than so few numbers take
        numbers = array.reshape(-1).tolist()
        return all(map(math.isfinite, numbers)) and not (_AMBIGUOUS in numbers or -_AMBIGUOUS in numbers)
    return bool(_plain(array).all())


def _plain(array: NDArray[Any]) -> NDArray[np.bool_]:
    plain = np.isfinite(array)
    return plain & (np.abs(array) != np.float32(_AMBIGUOUS)) if array.dtype == np.float32 else plain


def _spelled(array: NDArray[Any]) -> Any:
    """Return nested lists with strings for what is not finite.

    What is plain goes through the writer and back, so that a float32 keeps its short text.
    """
    plain = _plain(array)
    text = dumps(np.where(plain, array, array.dtype.type(0)).reshape(-1))
    spelled = np.array(orjson.loads(text), object).reshape(array.shape)
    for word, value in casting.NONFINITE.items():
        spelled[np.isnan(array) if math.isnan(value) else array == value] = word
    odd = np.isfinite(array) & ~plain
    spelled[odd] = array[odd].astype(np.float64)
    return spelled.tolist()


def _flatten(value: Any, target: DType, loc: Loc) -> tuple[Shape, list[Any], set[type]]:
    """Return the shape of nested lists, their innermost values in one list, and the types of those.

    Goes level by level, because only whole levels can be looked at without a loop in Python.
    Raises ``Unprocessable`` for lists that are ragged or too deep; ``target`` tells what else may stand in their place.
    """
    if not isinstance(value, list):
        return (), [value], {type(value)}
    level = cast("list[Any]", value)
    shape: Shape = (len(level),)
    kinds: set[type] = set(map(type, level))
    while list in kinds:
        lengths = set(map(len, level)) if len(kinds) == 1 else set[int]()
        if len(lengths) != 1:
            raise _ragged(level, shape, target, loc)
        if len(shape) == MAX_RANK:
            raise wrong(loc, "tensor nested too deeply", expected=f"rank <= {MAX_RANK}", got="a higher rank")
        shape += (lengths.pop(),)
        level = list(chain.from_iterable(level))
        kinds = set(map(type, level))
    return shape, level, kinds


def _ragged(level: list[Any], shape: Shape, target: DType, loc: Loc) -> Unprocessable:
    """Return the error for the first of these, siblings of the given shape, that is not like the first of them."""
    first, one = level[0], casting.A_BOOL if target.is_bool else "a number"
    like = f"a list of {len(first)}" if isinstance(first, list) else one  # pyright: ignore[reportUnknownArgumentType]
    index = next(i for i, item in enumerate(level) if not _is_alike(item, first, target))
    message = "ragged nested lists"
    return wrong(
        _place(loc, index, shape), message, expected=f"{like}, like the first", got=casting.describe(level[index])
    )


def _is_alike(item: Any, first: Any, target: DType) -> bool:
    if isinstance(first, list) and isinstance(item, list):
        return len(cast("list[Any]", item)) == len(cast("list[Any]", first))
    return not isinstance(first, list) and type(item) in ((bool,) if target.is_bool else (int, float, str))


def _place(loc: Loc, index: int, shape: Shape) -> Loc:
    return (*loc, *map(int, np.unravel_index(index, shape)))


def _cast(flat: list[Any], kinds: set[type], target: DType, shape: Shape, loc: Loc) -> NDArray[Any]:
    try:
        return casting.cast(flat, kinds, target)
    except casting.Loss as loss:
        where = _place(loc, loss.index, shape)
        raise wrong(where, loss.message, expected=loss.expected, got=loss.got) from None


def _cast_numbers(numbers: Numbers, target: DType, loc: Loc) -> NDArray[Any]:
    try:
        return casting.cast_numbers(numbers, target)
    except casting.Loss as loss:
        raise wrong((*loc, loss.index), loss.message, expected=loss.expected, got=loss.got) from None


def _typed(tensor: dict[str, Any], target: DType, loc: Loc) -> NDArray[Any]:
    _check_keys(tensor, loc)
    refuse_cast(tensor["dtype"], target, loc)
    shape = read_shape(tensor["shape"], target, (*loc, "shape"))
    if "data" in tensor:
        return _from_data(tensor["data"], shape, target, (*loc, "data"))
    return _from_base64(tensor["base64"], shape, target, (*loc, "base64"))


def _check_keys(tensor: dict[str, Any], loc: Loc) -> None:
    for key in tensor:
        if key not in _KEYS:
            raise wrong((*loc, key), "unknown key in a tensor", expected=f"one of {', '.join(_KEYS)}", got=key)
    for key in ("dtype", "shape"):
        if key not in tensor:
            raise wrong((*loc, key), f"tensor has no {key}", expected=f'a "{key}"', got="nothing")
    if "data" in tensor and "base64" in tensor:
        raise wrong((*loc, "base64"), "tensor has data twice", expected='"data" or "base64"', got="both")
    if "data" not in tensor and "base64" not in tensor:
        raise wrong((*loc, "data"), "tensor has no data", expected='"data" or "base64"', got="neither")


def read_shape(value: Any, target: DType, loc: Loc) -> Shape:
    """Return a shape as a request has it, as a tuple that NumPy can have; raises ``Unprocessable``."""
    if not isinstance(value, list):
        raise wrong(loc, "expected a list of integers", expected="a list of integers", got=casting.describe(value))
    sizes = cast("list[Any]", value)
    if len(sizes) > MAX_RANK:
        raise wrong(loc, "too many dimensions", expected=f"rank <= {MAX_RANK}", got=f"rank {len(sizes)}")
    for axis, size in enumerate(sizes):
        if type(size) is not int or not 0 <= size <= MAX_DIMENSION:
            expected = f"an integer from 0 to {MAX_DIMENSION}"
            raise wrong((*loc, axis), "invalid dimension", expected=expected, got=casting.describe(size))
    _refuse_vast(sizes, target, loc)
    return tuple(sizes)


def _refuse_vast(sizes: list[int], target: DType, loc: Loc) -> None:
    """Refuse a shape that NumPy cannot have even when a zero in it leaves it empty: it multiplies the rest."""
    count = math.prod(size for size in sizes if size)
    if count * target.itemsize > MAX_BYTES:
        raise wrong(loc, "shape too large", expected="less than 2^63 bytes", got=f"{count} elements")


def _from_data(data: Any, shape: Shape, target: DType, loc: Loc) -> NDArray[Any]:
    if isinstance(data, Numbers):
        _check_fit((data.values.size,), shape, loc)
        return _cast_numbers(data, target, loc).reshape(shape)
    found, flat, kinds = _flatten(data, target, loc)
    _check_fit(found, shape, loc)
    return _cast(flat, kinds, target, found, loc).reshape(shape)


def _check_fit(found: Shape, shape: Shape, loc: Loc) -> None:
    size = math.prod(shape)
    if found not in (shape, (size,), _cut(shape)):
        nested = f", or nested as {list(shape)}" if len(shape) != 1 else ""
        got = f"shape {list(found)}"
        raise wrong(loc, "data does not match the shape", expected=f"a flat list of {size}{nested}", got=got)


def _cut(shape: Shape) -> Shape:
    """Return what nested lists show of a shape: an empty list hides every dimension after it."""
    return shape[: shape.index(0) + 1] if 0 in shape else shape


def _from_base64(text: Any, shape: Shape, target: DType, loc: Loc) -> NDArray[Any]:
    if not isinstance(text, str | Decoded):
        raise wrong(loc, "expected a base64 string", expected="a string", got=casting.describe(text))
    size, came = math.prod(shape) * target.itemsize, text.length if isinstance(text, Decoded) else len(text)
    length = (size + 2) // 3 * 4
    if came != length:  # before decoding, which costs as much as the text is long
        expected = f"{length} characters for {size} bytes, with padding and without line breaks"
        raise wrong(loc, "base64 does not match the shape", expected=expected, got=f"{came} characters")
    raw = text.raw if isinstance(text, Decoded) else _decoded(text, loc)
    if len(raw) != size:
        raise wrong(loc, "base64 does not match the shape", expected=f"{size} bytes", got=f"{len(raw)} bytes")
    if target.is_bool:
        return _as_bools(np.frombuffer(raw, np.uint8), shape, loc)
    return np.frombuffer(raw, target.wire).astype(target.numpy, copy=False).reshape(shape)


def _as_bools(raw: NDArray[np.uint8], shape: Shape, loc: Loc) -> NDArray[Any]:
    try:
        return casting.bools(raw).reshape(shape)
    except casting.Loss as loss:
        where = _place(loc, loss.index, shape)
        raise wrong(where, loss.message, expected=loss.expected, got=loss.got) from None


def _decoded(text: str, loc: Loc) -> bytes:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:  # binascii.Error is one; characters beyond ASCII are plain ones
        raise wrong(loc, "invalid base64", expected="A-Z a-z 0-9 + / and padding", got=str(error)) from None
