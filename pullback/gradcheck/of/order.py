"""Numbers in ascending order, such as the knots of a spline: a function may need them so, and no two equal."""

import numpy as np

from pullback.dtypes import Array

FEWEST = 3
"""Fewer numbers are in order by chance."""


def is_ordered(x: Array) -> bool:
    """Return whether numbers ascend."""
    return x.ndim == 1 and x.size >= FEWEST and bool((np.diff(x) > 0).all())


def resampled(x: Array, size: int) -> Array:
    """Return so many ascending numbers, between the ends of some that ascend."""
    return np.interp(np.linspace(0, len(x) - 1, size), np.arange(len(x)), x)


def in_order(x: Array, like: Array) -> Array:
    """Return numbers in ascending order if others are."""
    return np.sort(x) if is_ordered(like) else x
