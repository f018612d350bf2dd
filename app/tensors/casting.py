"""Casts of numbers or bools from JSON to a flat array of one dtype; a value that does not fit raises ``Loss``.

A number is read as its nearest float64, or exactly if it is written without a point or an exponent.

- To a float dtype it is rounded from there to nearest, ties to even. Underflow to zero or to a subnormal is rounding,
  and so is an integer with more digits than the dtype. A finite number that would become infinite is a loss.
- To an integer dtype nothing is rounded. A float must be integral and below 2^53, because a larger one may differ from
  the number that was written.
- Bools and numbers are never converted to each other: 1 is not true. As a byte, a bool is 0 or 1.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from app.tensors.dtypes import DType

ALIGNMENT = 64
NONFINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
# What reads the numbers of JSON as float64 rounds integers beyond 2^53, and has them as strings.
DIGITS = re.compile(r"-?(0|[1-9][0-9]{0,19})")
A_NUMBER = 'a number, or "NaN", "Infinity" or "-Infinity"'
A_BOOL = "true or false"

BRACKETS_TO_BLANKS = bytes.maketrans(b"[]", b"  ")
NUMBERS: frozenset[type] = frozenset((float, int))
# Numbers are read in parts of this many bytes.
PART = 1 << 16
_EXACT = 1 << 53
_QUOTED = 40


def aligned(size: int, lead: int = 0) -> NDArray[np.uint8]:
    """Return ``size`` uninitialised bytes; those after the first ``lead`` begin at a multiple of ``ALIGNMENT``."""
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -(raw.ctypes.data + lead) % ALIGNMENT
    return raw[start : start + size]


class Source:
    """Where the numbers of a tensor are in the body of a request, and the array that was decoded from them.

    ``start`` is the position of the run of numbers, or of the base64 text, that they are in; -1 if it is unknown. They
    begin at the number ``first`` of the run.
    """

    start: int = -1
    first: int = 0
    array: NDArray[Any] | None = None


class NumberList(list[Any], Source):
    """A list of numbers, flat or nested, as parsed from JSON."""


@dataclass(eq=False)
class Numbers(Source):
    """A tensor that was parsed in bulk: the nearest float64 to each number, flat; its shape; its JSON text."""

    values: NDArray[np.float64]
    shape: tuple[int, ...]
    text: memoryview


class Document(dict[str, Any]):
    """A JSON object, and the ``sources`` of its tensors, as far as they are known."""

    sources: tuple[Source, ...] = ()


class Loss(Exception):
    """The element at ``index`` of the flat list cannot be represented in the dtype."""

    def __init__(self, index: int, message: str, *, expected: str, got: str) -> None:
        """Keep the index, the message, and the expected and actual value."""
        super().__init__(message)
        self.index, self.message, self.expected, self.got = index, message, expected, got


def describe(value: Any) -> str:
    """Return a short description of a JSON value of any size and depth, in the terms of JSON."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str():
            return f'the string "{value}"' if len(value) <= _QUOTED else f"a string of {len(value)} characters"
        case list():
            return f"a list of {len(value)}"  # pyright: ignore[reportUnknownArgumentType]
        case dict():
            return "an object"
        case _:
            return str(value)


def cast_numbers(numbers: Numbers, dtype: DType) -> NDArray[Any]:
    """Return numbers as an array of shape (N,) and of this dtype; raise as ``cast`` does."""
    if dtype.is_float:
        return _round(numbers.values, dtype)
    # A float64 may differ from the integer that was written.
    text = bytes(numbers.text).translate(BRACKETS_TO_BLANKS)
    try:
        return np.concatenate([_cast_text(part, dtype) for part in _parts(text)])
    except Loss:
        return _cast_text(text, dtype)  # of several losses, the one in the whole text counts


def _cast_text(text: bytes, dtype: DType) -> NDArray[Any]:
    flat: list[Any] = orjson.loads(b"[%b]" % text)
    return cast(flat, set(map(type, flat)), dtype)


def _parts(text: bytes) -> Iterator[bytes]:
    """Yield parts of a text, cut at commas: other threads can take the interpreter between two."""
    start = 0
    while start <= len(text):
        comma = text.find(b",", start + PART)
        stop = comma if comma >= 0 else len(text)
        yield text[start:stop]
        start = stop + 1


def cast(flat: Sequence[Any], kinds: set[type], dtype: DType) -> NDArray[Any]:
    """Return the values ``flat``, whose types are ``kinds``, as a new array of shape (N,) and of this dtype.

    Raises ``Loss`` for the first element that is not a number (for the dtype bool: not a bool), or that the dtype
    cannot represent.
    """
    if dtype.is_bool:
        if not kinds <= {bool}:  # NumPy would convert any value
            index, value = next((i, v) for i, v in enumerate(flat) if type(v) is not bool)
            raise Loss(index, "expected a bool", expected=A_BOOL, got=describe(value))
        return np.array(flat, np.bool_)
    if not kinds <= NUMBERS:
        flat = _numbers_of(flat, kinds, dtype)
    return _round(np.array(flat, np.float64), dtype) if dtype.is_float else _integers(flat, kinds, dtype)


def bools(raw: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return bytes of any shape as bools in the same memory.

    Raises ``Loss`` for the first byte, in row-major order, that is neither 0 nor 1: kernels may test any bit, so one
    would read it as true and another as false.
    """
    if raw.max(initial=0) > 1:
        index = int((raw.reshape(-1) > 1).argmax())
        raise Loss(index, "invalid bool byte", expected="0 or 1", got=str(raw.reshape(-1)[index]))
    return raw.view(np.bool_)


def narrow(values: NDArray[np.float64], dtype: DType) -> NDArray[Any]:
    """Return ``values``, of any shape, rounded once to the float dtype: to nearest, ties to even.

    No finite value may overflow.
    """
    if not dtype.rounds_once:
        return _odd_float32(values).astype(dtype.numpy)
    return values.astype(dtype.numpy, copy=False)


def _odd_float32(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Round to float32 "to odd": towards zero, with the last bit set if the result is inexact.

    NumPy converts to bfloat16, for example, through float32, and rounding to nearest twice is wrong next to a tie.
    Rounding to odd first creates no new ties.
    """
    single = values.astype(np.float32)
    back = single.astype(np.float64)
    bits = single.view(np.uint32)
    bits -= np.abs(back) > np.abs(values)
    bits |= back != values
    return single


def _round(values: NDArray[np.float64], dtype: DType) -> NDArray[Any]:
    """Return the values rounded to the float dtype; raise ``Loss`` for the first finite one that overflows."""
    # The second test looks at each number: a NaN or an infinity fails the first.
    if values.size and not (values.max() < dtype.high and values.min() > dtype.low):
        over = np.isfinite(values) & ~((dtype.low < values) & (values < dtype.high))
        if over.any():
            index = int(over.argmax())
            expected = f"a magnitude below {dtype.high:.9g}"
            raise Loss(index, f"number overflows {dtype.name}", expected=expected, got=str(values[index]))
    return narrow(values, dtype)


def _integers(flat: Sequence[Any], kinds: set[type], dtype: DType) -> NDArray[Any]:
    if float in kinds:
        _refuse_inexact(flat, dtype)
        flat = list(map(int, flat))
    try:
        return np.array(flat, dtype.numpy)
    except OverflowError:
        index, value = next((i, v) for i, v in enumerate(flat) if not dtype.low <= v <= dtype.high)
        expected = f"an integer from {dtype.low} to {dtype.high}"
        message = f"number out of range for {dtype.name}"
        raise Loss(index, message, expected=expected, got=str(value)) from None


def _refuse_inexact(flat: Sequence[Any], dtype: DType) -> None:
    for index, value in enumerate(flat):
        if type(value) is not float or (value.is_integer() and abs(value) < _EXACT):
            continue
        if not value.is_integer():
            raise Loss(index, "not an integer", expected="an integer", got=str(value))
        expected = "an integer without point or exponent, below 2^64, or a float below 2^53"
        raise Loss(index, "a float this large may have been rounded", expected=expected, got=str(value))


def _numbers_of(flat: Sequence[Any], kinds: set[type], dtype: DType) -> list[Any]:
    """Return the values with numbers in place of strings: of those in ``NONFINITE``, or of the digits of integers.

    Raises ``Loss`` for the first value that is neither a number nor such a string.
    """
    if dtype.is_float and kinds <= {*NUMBERS, str}:
        try:
            return [NONFINITE[value] if type(value) is str else value for value in flat]
        except KeyError:
            pass
    index, value = next(((i, v) for i, v in enumerate(flat) if not _is_number(v, dtype)), (None, None))
    if index is None:
        return [int(value) if type(value) is str else value for value in flat]
    if type(value) is str and value in NONFINITE:
        raise Loss(index, f"{dtype.name} has no {value}", expected="an integer", got=describe(value))
    expected = A_NUMBER if dtype.is_float else "an integer, or a string of its digits"
    raise Loss(index, "expected a number", expected=expected, got=describe(value))


def _is_number(value: Any, dtype: DType) -> bool:
    if type(value) is str:
        return value in NONFINITE if dtype.is_float else DIGITS.fullmatch(value) is not None
    return type(value) in NUMBERS
