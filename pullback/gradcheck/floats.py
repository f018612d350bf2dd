"""The range and the precision of float dtypes."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from pullback.dtypes import FLOATS

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


def ulps(difference: float, of: float, dtype: str) -> float:
    """Return a difference in units in the last place of the number ``of`` in ``dtype``."""
    if not np.isfinite(of):
        return difference
    return difference / (2.0 ** math.floor(math.log2(max(abs(of), tiny(dtype)))) * eps(dtype))
