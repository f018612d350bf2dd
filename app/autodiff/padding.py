"""Elementwise programs, whatever the shapes: flattened, laid side by side, padded to one of a few lengths.

Vectorised kernels treat the end of an array in another way than its middle, so that the same numbers may differ in
their last bit alone and in company. Where a length is a multiple of a vector's they do not, wherever they stand: so one
call may serve many, a single one is padded as well, and a large one is cut into pieces that stay in the cache.
"""

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from app.autodiff.programs import Program
from app.runtime import modes
from app.runtime.eager import Key, KeyedArrays
from app.tensors.memory import ALIGNMENT, aligned
from ops import Array, Mode

# Each length is a trace, or with XLA a compilation. The last is that of the pieces of what is longer.
LENGTHS = (1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18)
SHARED = 1 << 14
"""How many numbers calls may share. What is longer pays for itself."""


class NotElementwise(Exception):
    """A result has another shape than the inputs: what is wrong there shows at the shape that was asked for."""


def run(program: Program, mode: Mode, members: Sequence[Sequence[Array]], device: str) -> list[KeyedArrays]:
    """Run a program for members side by side: each has leaves of one shape, and the same number attributes as all.

    Raises ``NotElementwise`` where the op does not keep the shape, and what ``modes.run`` raises.
    """
    first_number = len(program.op.inputs)
    numbers = range(first_number, first_number + len(program.op.attrs.number_names()))
    columns, total = list(zip(*members, strict=True)), 0
    for leaves in members:
        total += leaves[0].size
    parts: list[KeyedArrays] = []
    for start in range(0, total, LENGTHS[-1]):
        count = min(total - start, LENGTHS[-1])
        leaves = [column[0] if i in numbers else _row(column, start, count) for i, column in enumerate(columns)]
        parts.append(_unpadded(modes.run(program, mode, leaves, device), len(leaves[0]), count))
    whole = parts[0] if len(parts) == 1 else {key: _concatenated(parts, key) for key in parts[0]}
    if len(members) == 1 and members[0][0].ndim == 1:
        return [whole]
    results, end = list[KeyedArrays](), 0
    for leaves in members:
        start, end, shape = end, end + leaves[0].size, leaves[0].shape
        results.append({key: None if row is None else row[start:end].reshape(shape) for key, row in whole.items()})
    return results


def length_for(count: int) -> int:
    """Return the length of the array that so many numbers, at most the longest, are padded to."""
    return LENGTHS[bisect_left(LENGTHS, count)]


def _row(arrays: Sequence[Array], start: int, count: int) -> Array:
    """Return arrays side by side, or a part of a single one, filled up to one of the lengths with its last number.

    That number is in the op's domain, whatever this may be. A long row is aligned, so that TensorFlow does not copy it.
    """
    length, parts = LENGTHS[bisect_left(LENGTHS, count)], arrays
    if len(arrays) == 1:
        part = arrays[0].reshape(-1)[start : start + count]
        if count == length and part.ctypes.data % ALIGNMENT == 0:
            return part
        parts = [part]
    dtype = arrays[0].dtype
    row = np.empty(length, dtype) if length <= LENGTHS[0] else aligned(length * dtype.itemsize).view(dtype)
    if len(parts) == 1:
        row[:count] = parts[0]
    else:
        np.concatenate([part.reshape(-1) for part in parts], out=row[:count])
    row[count:] = row[count - 1]
    return row


def _unpadded(found: KeyedArrays, length: int, count: int) -> KeyedArrays:
    """Return the results without their padding, and without shapes, which are checked here.

    Raises ``NotElementwise``.
    """
    kept: KeyedArrays = {}
    for key, value in found.items():
        what, name = key
        is_shape = str(what).endswith("shape")
        if value is not None and (shape := tuple(value.tolist()) if is_shape else value.shape) != (length,):
            raise NotElementwise(f"{name} has shape {list(shape)}, and the inputs {[length]}")
        if not is_shape:
            kept[key] = None if value is None else value[:count]
    return kept


def _concatenated(parts: Sequence[KeyedArrays], key: Key) -> Array | None:
    values = [value for value in (part[key] for part in parts) if value is not None]
    return np.concatenate(values) if values else None
