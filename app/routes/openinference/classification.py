"""Triton's classification extension: the largest elements of an output, as strings, in place of the tensor."""

import struct
from collections.abc import Sequence

import numpy as np

from ops import Array

# Elements are compared in blocks of this size, so that the indices of a large tensor take little memory.
BLOCK = 1 << 20


def top_classes(array: Array, count: int) -> list[str]:
    """Return ``value:index`` of the ``count`` largest elements of an array, or of all if it has fewer.

    The index is that in the flat array. The largest element comes first, equal ones in the order of their indices; NaN
    counts as -infinity. The value is the shortest number that restores the element.
    """
    flat = array.reshape(-1)
    keys, indices = _descending(flat[:0]), np.arange(0)
    for start in range(0, flat.size, BLOCK):
        block = _descending(flat[start : start + BLOCK])
        keys = np.concatenate((keys, block))
        indices = np.concatenate((indices, np.arange(start, start + block.size)))
        kept = _smallest(keys, count)
        keys, indices = keys[kept], indices[kept]
    indices = indices[np.argsort(keys, kind="stable")]
    # A bool is 0 or 1.
    values = flat[indices].astype(np.uint8) if flat.dtype.kind == "b" else flat[indices]
    return [f"{value!s}:{index}" for value, index in zip(values, indices.tolist(), strict=True)]


def as_bytes(words: Sequence[str]) -> bytes:
    """Return strings as a binary tensor of BYTES: the length of each in 4 bytes, little-endian, then the string."""
    return b"".join(struct.pack("<I", len(word)) + word.encode() for word in words)


def _smallest(keys: Array, count: int) -> Array:
    """Return the indices of the ``count`` smallest keys in ascending order; the first ones of equal keys.

    The time is proportional to the number of keys.
    """
    if keys.size <= count:
        return np.arange(keys.size)
    bound = np.partition(keys, count - 1)[count - 1]
    less, equal = np.flatnonzero(keys < bound), np.flatnonzero(keys == bound)
    return np.sort(np.concatenate((less, equal[: count - less.size])))


def _descending(values: Array) -> Array:
    """Return keys whose ascending order is the descending order of the values."""
    if values.dtype.kind in "iub":
        return ~values
    keys = -values.astype(np.result_type(values.dtype, np.float32), copy=False)
    return np.where(np.isnan(keys), np.inf, keys)
