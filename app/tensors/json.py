"""Tensors in JSON.

A tensor in a request is any of these values under a name::

    0.5                                                         a number, or true or false: rank 0
    [[1, 2.5], ["NaN", "-Infinity"]]                            a nested list, of numbers or of bools
    {"dtype": "float32", "shape": [2, 2], "data": [1, 2, 3, 4]} typed; data flat, or nested exactly as shape
    {"dtype": "float32", "shape": [1], "base64": "AACAPw=="}    typed; little-endian, row-major

A complex number is a pair [re, im], a last axis of length 2 that ``shape`` does not have; flat data have the pairs one
after the other, and so has base64.

Untyped numbers are cast to the requested dtype by the rules of ``casting``; a typed tensor is never cast. Responses
have the typed forms (``app.tensors.layouts.encode``).
"""

import binascii
import math
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from app.errors import Loc, Unprocessable, wrong
from app.tensors import casting
from app.tensors.casting import Numbers, Source
from app.tensors.dtypes import COMPLEX, DTYPES, MAX_BYTES, MAX_DIMENSION, MAX_RANK, DType

Shape = tuple[int, ...]

FIELDS = ("inputs", "cotangents", "tangents", "vectors")
"""The fields of a native request that have tensors by name."""
_SHORT = 64

_KEYS = ("dtype", "shape", "data", "base64")


@dataclass(eq=False)
class Decoded(Source):
    """A decoded base64 string: its bytes, and its length in characters."""

    raw: bytes
    length: int


def decode(value: Any, dtype: str, loc: Loc) -> NDArray[Any]:
    """Return the tensor in ``value`` as a C-contiguous array of exactly ``dtype``.

    ``value`` is a result of ``parse``, or an array of a binary body. The array may be read-only. Raises
    ``Unprocessable``, with the location of the element, for values that are not numbers (for the dtype bool: not
    bools), ragged lists, values that do not fit the dtype or the tensor's own shape, and an array of another dtype;
    ``KeyError`` for a ``dtype`` that is not in the table.
    """
    if dtype in COMPLEX:
        return _decode_complex(value, COMPLEX[dtype], loc)
    target, source = DTYPES[dtype], value
    items = cast("list[Any]", value) if isinstance(value, list) else []
    # Python is faster than NumPy's reductions for so few numbers; a NaN or an infinity fails the test.
    is_short = 0 < len(items) <= _SHORT and casting.NUMBERS.issuperset(map(type, items))
    if is_short and target.rounds_once and max(items) < target.high and min(items) > target.low:
        array = np.array(items, target.numpy)
    elif isinstance(value, dict):
        tensor = cast("dict[str, Any]", value)
        array, source = _decode_typed(tensor, target, loc), tensor.get("data") or tensor.get("base64")
    elif isinstance(value, Numbers):
        with _located(loc, value.shape):
            array = casting.cast_numbers(value, target).reshape(value.shape)
    elif isinstance(value, np.ndarray):
        array = cast("NDArray[Any]", value)
        refuse_cast(array.dtype.name, target, loc)
        array = array if array.flags.aligned else array.copy()
    else:
        shape, flat, kinds = _flatten(value, target, loc)
        with _located(loc, shape):
            array = casting.cast(flat, kinds, target).reshape(shape)
    if isinstance(source, Source):
        source.array = array
    return array


def _decode_complex(value: Any, target: DType, loc: Loc) -> NDArray[Any]:
    """Return complex numbers as an array of pairs (re, im), as ``decode`` returns others."""
    part = DTYPES[target.part]
    if isinstance(value, np.ndarray):
        array = cast("NDArray[Any]", value)
        refuse_cast(array.dtype.name, target, loc)
        return np.ascontiguousarray(array).view(part.numpy).reshape(*array.shape, 2)
    if isinstance(value, dict):
        tensor = cast("dict[str, Any]", value)
        array, source = _decode_typed(tensor, target, loc), tensor.get("data") or tensor.get("base64")
        if isinstance(source, Source):
            source.array = array
        return array
    array = decode(value, target.part, loc)
    if array.shape[-1:] != (2,):
        got = f"a list of {array.shape[-1]} in the last axis" if array.ndim else "a number"
        expected = f"pairs [re, im] in the last axis, of shape [..., 2], for {target.name}"
        raise wrong(loc, "expected pairs of the real and the imaginary part", expected=expected, got=got)
    return array


def dtypes_of(tensors: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the dtype of each typed tensor of a request, by name; ``None`` for numbers without one."""
    return {name: _own_dtype(value) for name, value in tensors.items()}


def _own_dtype(value: Any) -> str | None:
    if isinstance(value, np.ndarray):
        return cast("NDArray[Any]", value).dtype.name
    dtype = cast("dict[str, Any]", value).get("dtype") if isinstance(value, dict) else None
    return dtype if isinstance(dtype, str) else None


def refuse_cast(name: Any, target: DType, loc: Loc) -> None:
    """Raise ``Unprocessable`` for a typed tensor at ``loc`` unless ``name`` is the name of the target dtype."""
    if name != target.name:
        got = casting.describe(name).removeprefix("the string ")
        raise wrong((*loc, "dtype"), "typed tensors are not cast", expected=f'"{target.name}"', got=got)


def _flatten(value: Any, target: DType, loc: Loc) -> tuple[Shape, list[Any], set[type]]:
    """Return the shape of nested lists, their innermost values in one list, and the types of these values.

    Goes level by level, because whole levels need no loop in Python. Raises ``Unprocessable`` for lists that are ragged
    or too deep; ``target`` determines the valid innermost values.
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
    """Return the error for the first item of a level of this shape that differs in kind or length from item 0."""
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


@contextmanager
def _located(loc: Loc, shape: Shape) -> Generator[None]:
    """Report a ``Loss`` in this block as ``Unprocessable``, at its element of the tensor of this shape at ``loc``."""
    try:
        yield
    except casting.Loss as loss:
        raise wrong(_place(loc, loss.index, shape), loss.message, expected=loss.expected, got=loss.got) from None


def _decode_typed(tensor: dict[str, Any], target: DType, loc: Loc) -> NDArray[Any]:
    _check_keys(tensor, loc)
    refuse_cast(tensor["dtype"], target, loc)
    shape = read_shape(tensor["shape"], target, (*loc, "shape"))
    if target.part:
        shape, target = (*shape, 2), DTYPES[target.part]
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
    """Return the shape in a request as a tuple; raise ``Unprocessable`` if NumPy does not support it."""
    if not isinstance(value, list):
        raise wrong(loc, "expected a list of integers", expected="a list of integers", got=casting.describe(value))
    sizes = cast("list[Any]", value)
    if len(sizes) > MAX_RANK:
        raise wrong(loc, "too many dimensions", expected=f"rank <= {MAX_RANK}", got=f"rank {len(sizes)}")
    for axis, size in enumerate(sizes):
        if type(size) is not int or not 0 <= size <= MAX_DIMENSION:
            expected = f"an integer from 0 to {MAX_DIMENSION}"
            raise wrong((*loc, axis), "invalid dimension", expected=expected, got=casting.describe(size))
    # NumPy limits the product of the nonzero sizes, even if a zero makes the array empty.
    count = math.prod(size for size in sizes if size)
    if count * target.itemsize > MAX_BYTES:
        raise wrong(loc, "shape too large", expected="less than 2^63 bytes", got=f"{count} elements")
    return tuple(sizes)


def _from_data(data: Any, shape: Shape, target: DType, loc: Loc) -> NDArray[Any]:
    if isinstance(data, Numbers):
        _check_fit(data.shape, shape, loc)
        with _located(loc, data.shape):
            return casting.cast_numbers(data, target).reshape(shape)
    nested, flat, kinds = _flatten(data, target, loc)
    _check_fit(nested, shape, loc)
    with _located(loc, nested):
        return casting.cast(flat, kinds, target).reshape(shape)


def _check_fit(actual: Shape, shape: Shape, loc: Loc) -> None:
    """Raise ``Unprocessable`` unless data of the actual shape are flat or nested as ``shape``."""
    size = math.prod(shape)
    visible = shape[: shape.index(0) + 1] if 0 in shape else shape  # an empty list hides the dimensions after it
    if actual not in (shape, (size,), visible):
        nested = f", or nested as {list(shape)}" if len(shape) != 1 else ""
        got = f"shape {list(actual)}"
        raise wrong(loc, "data does not match the shape", expected=f"a flat list of {size}{nested}", got=got)


def _from_base64(text: Any, shape: Shape, target: DType, loc: Loc) -> NDArray[Any]:
    if not isinstance(text, str | Decoded):
        raise wrong(loc, "expected a base64 string", expected="a string", got=casting.describe(text))
    size, characters = math.prod(shape) * target.itemsize, text.length if isinstance(text, Decoded) else len(text)
    length = (size + 2) // 3 * 4
    if characters != length:  # before decoding, whose cost grows with the text
        expected = f"{length} characters for {size} bytes, with padding and without line breaks"
        raise wrong(loc, "base64 does not match the shape", expected=expected, got=f"{characters} characters")
    try:
        raw = text.raw if isinstance(text, Decoded) else binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:  # binascii.Error is a ValueError; characters beyond ASCII raise ValueError itself
        raise wrong(loc, "invalid base64", expected="A-Z a-z 0-9 + / and padding", got=str(error)) from None
    if len(raw) != size:
        raise wrong(loc, "base64 does not match the shape", expected=f"{size} bytes", got=f"{len(raw)} bytes")
    if target.is_bool:
        with _located(loc, shape):
            return casting.bools(np.frombuffer(raw, np.uint8)).reshape(shape)
    return np.frombuffer(raw, target.wire).astype(target.numpy, copy=False).reshape(shape)
