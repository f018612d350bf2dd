"""What a cast may lose: numbers or bools as JSON has them, to one flat array of exactly one dtype, or ``Loss``.

A number stands for the float64 nearest to it, or, when it is written without a point or an exponent, for itself.

- To a float dtype it is rounded to nearest, ties to even, from there: underflow to zero or to a subnormal is
  rounding, and so is an integer that has more digits than the dtype. A finite number that would become infinite is
  a loss.
- To an integer dtype nothing is rounded. A float must be integral and below 2^53, because above it may already be
  the neighbour of what was written.
- A bool is no number, and no number a bool: 1 is not true. As a byte it is 0 or 1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from app.tensors.dtypes import DType

NONFINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
A_NUMBER = 'a number, or "NaN", "Infinity" or "-Infinity"'
A_BOOL = "true or false"

NUMBERS: frozenset[type] = frozenset((float, int))
_EXACT = 1 << 53
_QUOTED = 40


@dataclass(frozen=True, eq=False)
class Numbers:
    """A flat list of numbers that was read at one go: the float64 nearest to each, and its text in JSON."""

    values: NDArray[np.float64]
    text: memoryview


class Loss(Exception):
    """The element at ``index`` of the flat list cannot be had in the dtype."""

    def __init__(self, index: int, message: str, *, expected: str, got: str) -> None:
        """Say which element, what is wrong with it, what was expected and what came."""
        super().__init__(message)
        self.index, self.message, self.expected, self.got = index, message, expected, got


def describe(value: Any) -> str:
    """Return what came, in the words of JSON and in few of them, however large or deep it is."""
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
    """Return numbers as an array of shape (N,) and of this dtype; raises as ``cast`` does."""
    if dtype.is_float:
        return _rounded(numbers.values, dtype)
    flat: list[Any] = orjson.loads(numbers.text)  # a float64 may be another integer than the one that was written
    return cast(flat, set(map(type, flat)), dtype)


def cast(flat: Sequence[Any], kinds: set[type], dtype: DType) -> NDArray[Any]:
    """Return the values ``flat``, whose types are ``kinds``, as a new array of shape (N,) and of this dtype.

    Raises ``Loss`` for the first element that is no number (for the dtype bool: no bool), and for one that the dtype
    cannot hold.
    """
    if dtype.is_bool:
        return _bools(flat, kinds)
    if not kinds <= NUMBERS:
        flat = _respelled(flat, kinds, dtype)
    return _rounded(np.array(flat, np.float64), dtype) if dtype.is_float else _integers(flat, kinds, dtype)


def bools(raw: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return bytes, of any shape, as the bools that they are, in the same memory.

    Raises ``Loss`` for the first byte, counted in row-major order, that is neither 0 nor 1: kernels may look at any bit
    of it, so that it would be true to one and false to the next.
    """
    if raw.max(initial=0) > 1:
        index = int((raw.reshape(-1) > 1).argmax())
        raise Loss(index, "invalid bool byte", expected="0 or 1", got=str(raw.reshape(-1)[index]))
    return raw.view(np.bool_)


def narrow(values: NDArray[np.float64], dtype: DType) -> NDArray[Any]:
    """Return ``values``, of any shape, rounded once to the float dtype: to nearest, ties to even.

    No finite value may be one that becomes infinite.
    """
    if dtype.name == "bfloat16":
        return _odd_float32(values).astype(dtype.numpy)
    return values.astype(dtype.numpy, copy=False)


def _odd_float32(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Round to float32 "to odd": towards zero, with the last bit set where anything was cut off.

    NumPy reaches bfloat16 by way of float32, and rounding to nearest twice is wrong next to a tie. After rounding to
    odd no value is on a tie that was not on one before.
    """
    single = values.astype(np.float32)
    back = single.astype(np.float64)
    bits = single.view(np.uint32)
    bits -= np.abs(back) > np.abs(values)
    bits |= back != values
    return single


def _bools(flat: Sequence[Any], kinds: set[type]) -> NDArray[np.bool_]:
    if not kinds <= {bool}:  # NumPy would make something of anything
        index, value = next((i, v) for i, v in enumerate(flat) if type(v) is not bool)
        raise Loss(index, "expected a bool", expected=A_BOOL, got=describe(value))
    return np.array(flat, np.bool_)


def _rounded(values: NDArray[np.float64], dtype: DType) -> NDArray[Any]:
    """Return the values in the dtype; a NaN or an infinity among them asks for a closer look."""
    if values.size and not (values.max() < dtype.high and values.min() > dtype.low):
        _refuse_overflow(values, dtype)
    return narrow(values, dtype)


def _refuse_overflow(values: NDArray[np.float64], dtype: DType) -> None:
    over = np.isfinite(values) & ~((dtype.low < values) & (values < dtype.high))
    if over.any():
        index = int(over.argmax())
        message = f"number overflows {dtype.name}"
        raise Loss(index, message, expected=f"a magnitude below {dtype.high:.9g}", got=str(values[index]))


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


def _respelled(flat: Sequence[Any], kinds: set[type], dtype: DType) -> list[Any]:
    """Return the values with floats for the words, or raise ``Loss`` for the first that is neither number nor word."""
    if dtype.is_float and kinds <= {*NUMBERS, str}:
        try:
            return [NONFINITE[value] if type(value) is str else value for value in flat]
        except KeyError:
            pass
    raise _no_number(flat, dtype)


def _no_number(flat: Sequence[Any], dtype: DType) -> Loss:
    words = NONFINITE if dtype.is_float else {}
    index, value = next(
        (i, v) for i, v in enumerate(flat) if type(v) not in NUMBERS and not (type(v) is str and v in words)
    )
    if type(value) is str and value in NONFINITE:
        return Loss(index, f"{dtype.name} has no {value}", expected="an integer", got=describe(value))
    expected = A_NUMBER if dtype.is_float else "an integer"
    return Loss(index, "expected a number", expected=expected, got=describe(value))
