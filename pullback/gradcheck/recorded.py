"""Numbers that a report records, to compare with those of another version."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from pullback.dtypes import Array

MOST = 64
"""The most numbers of an array that are recorded, spread over it."""


def recorded(value: Array, error_bars: Array) -> dict[str, Any]:
    """Return the shape of an array, some of its numbers with their flat indices, and how far each may be off."""
    at = np.unique(np.linspace(0, max(0, value.size - 1), min(MOST, value.size)).astype(int))
    numbers, bars = (np.ravel(np.broadcast_to(x, value.shape))[at].astype(np.float64) for x in (value, error_bars))
    return {"shape": list(value.shape), "at": at.tolist(), "values": numbers.tolist(), "error_bars": bars.tolist()}


def digest_of(attrs: Mapping[str, Any], arrays: Iterable[tuple[str, Array]]) -> str:
    """Return a digest of where something is evaluated: the attributes, and named arrays with their bits."""
    found = hashlib.blake2b(repr(sorted(attrs.items())).encode(), digest_size=8)
    for name, x in arrays:
        found.update(f"{name} {x.dtype} {x.shape}".encode() + np.ascontiguousarray(x).tobytes())
    return found.hexdigest()
