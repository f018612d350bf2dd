"""Directions in the units of each number, so that no number hides another: powers of two, which round nothing."""

import numpy as np

from pullback.dtypes import Array

HIDDEN = 10
"""How far apart sizes are that hide a number, in powers of two."""
MOST = 48
"""The powers of two of which directions are made: they, and their products, stay far from the limits of float32."""


def powers(size: Array) -> Array:
    """Return the binary logarithm of sizes, rounded; 0 for a number that is 0 or not finite."""
    known = np.isfinite(size) & (size > 0)
    return np.clip(np.round(np.log2(size, out=np.zeros(size.shape), where=known)), -MOST, MOST)


def are_far_apart(size: Array) -> bool:
    """Return whether more than ``HIDDEN`` powers of two lie between the smallest and the largest size that is not 0."""
    known = powers(size)[np.isfinite(size) & (size > 0)]
    return bool(known.size and np.ptp(known) > HIDDEN)


def balance(direction: Array, size: Array) -> Array:
    """Return a direction divided by sizes."""
    return (direction * 2.0 ** -powers(size)).astype(direction.dtype)
