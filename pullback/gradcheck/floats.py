"""The range and the precision of float dtypes."""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from pullback.dtypes import DTYPES, FLOATS, Array

# How much larger than the smallest normal number a product may be whose factors are flushed to 0.
FLUSHED = 256.0


class Limits(NamedTuple):
    """The relative distance between neighbouring numbers, the smallest normal number, and the largest number."""

    eps: float
    tiny: float
    largest: float


def _limits(dtype: str) -> Limits:
    if dtype == "bfloat16":  # 8 bits of exponent and 7 of mantissa; NumPy lacks it
        return Limits(2.0**-7, 2.0**-126, (2 - 2.0**-7) * 2.0**127)
    found = np.finfo(dtype)
    return Limits(float(found.eps), float(found.smallest_normal), float(found.max))


_LIMITS: Mapping[str, Limits] = {dtype: _limits(dtype) for dtype in FLOATS}


def eps(dtype: str) -> float:
    """Return the relative distance between neighbouring numbers of a dtype."""
    return _LIMITS[dtype].eps


def tiny(dtype: str) -> float:
    """Return the smallest normal number: kernels flush smaller ones to 0, simplified graphs keep them."""
    return _LIMITS[dtype].tiny


def underflow(dtype: str) -> float:
    """Return how large a number may be that is rightly 0: its factors may be flushed to 0 before they are multiplied.

    CPUs do not flush the numbers of float16, which they compute in float32.
    """
    return tiny(dtype) if dtype == "float16" else FLUSHED * tiny(dtype)


def largest(dtype: str) -> float:
    """Return the largest number."""
    return _LIMITS[dtype].largest


def rounded(x: Array, dtype: str) -> Array:
    """Return the numbers of a dtype nearest to those of float64, as float64."""
    if dtype != "bfloat16":
        return x.astype(dtype).astype(np.float64)
    _, exponents = np.frexp(x)
    unit = np.ldexp(1.0, np.maximum(exponents - 8, -133))
    found: Array = np.rint(x / unit) * unit
    return np.where(np.abs(found) > largest(dtype), np.copysign(np.inf, found), found)


def encoded(x: Array, dtype: str) -> Array:
    """Return a contiguous copy of numbers in a dtype; in bfloat16, which NumPy lacks, their bits."""
    if dtype != "bfloat16":
        return np.array(x, np.dtype(dtype), order="C")
    return np.asarray(rounded(x, dtype).astype(np.float32).view(np.uint32) >> 16).astype(DTYPES[dtype].bits)


def holding(dtype: str) -> str:
    """Return a dtype of NumPy that has all numbers of a dtype."""
    return "float32" if dtype == "bfloat16" else dtype


def decoded(x: Array) -> Array:
    """Return numbers that may be the bits of bfloat16 as float64."""
    widen = DTYPES["bfloat16"].widen
    assert widen is not None
    return (widen(x) if name_of(x) == "bfloat16" else x).astype(np.float64)


def name_of(x: Array) -> str:
    """Return the dtype of numbers that may be the bits of bfloat16; no wider one than float64."""
    name = "bfloat16" if x.dtype.name == DTYPES["bfloat16"].bits else x.dtype.name
    return name if name in FLOATS else "float64"


def narrowest(dtypes: Iterable[str]) -> str:
    """Return the dtype whose numbers have the fewest digits."""
    return max(dtypes, key=eps)


def ulps(difference: float, of: float, dtype: str) -> float:
    """Return a difference in units in the last place of the number ``of`` in ``dtype``."""
    if not np.isfinite(of):
        return difference
    return difference / (2.0 ** math.floor(math.log2(max(abs(of), tiny(dtype)))) * eps(dtype))
