"""Elementwise programs, whatever the shapes: flattened, laid side by side, padded to one of a few lengths.

Vectorised kernels treat the end of an array in another way than its middle, so that the same numbers may differ in
their last bit alone and in company. Where a length is a multiple of a vector's they do not, wherever they stand: so one
call may serve many, a single one is padded as well, and a large one is cut into pieces that stay in the cache.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np

from app.autodiff.programs import Program
from app.runtime import modes
from app.runtime.modes import Key
from app.tensors.memory import ALIGNMENT, aligned
from ops import Array, Mode

Found: TypeAlias = dict[Key, Array | None]

# Each length is a trace, or with XLA a compilation. The last is that of the pieces of what is longer.
LENGTHS = (1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18)
SHARED = 1 << 14
"""How many numbers calls may share. What is longer pays for itself."""
MODES: tuple[Mode, ...] = ("graph", "xla")


class NotElementwise(Exception):
    """A result has another shape than the inputs: what is wrong there shows at the shape that was asked for."""


def fits(program: Program, mode: Mode, leaves: Sequence[Array]) -> bool:
    """Tell whether a program at these leaves can be run in buckets: not where there is nothing, or many directions."""
    return program.op.batching == "elementwise" and mode in MODES and not program.batched and leaves[0].size > 0


def run(program: Program, mode: Mode, members: Sequence[Sequence[Array]], device: str) -> list[Found]:
    """Run a program for members side by side: each has leaves of one shape, and the same number attributes as all.

    Raises ``NotElementwise`` where the op does not keep the shape, and what ``modes.run`` raises.
    """
    counts, numbers = [leaves[0].size for leaves in members], _numbers(program)
    columns = list(zip(*members, strict=True))
    total, parts = sum(counts), list[Found]()
    for start in range(0, total, LENGTHS[-1]):
        count = min(total - start, LENGTHS[-1])
        leaves = [column[0] if i in numbers else _row(column, start, count) for i, column in enumerate(columns)]
        parts.append(_asked_for(modes.run(program, mode, leaves, device), len(leaves[0]), count))
    whole = parts[0] if len(parts) == 1 else {key: _concatenated(parts, key) for key in parts[0]}
    items, ends = whole.items(), accumulate(counts)
    return [
        {key: value if value is None else _shaped(value[end - count : end], leaves[0]) for key, value in items}
        for leaves, count, end in zip(members, counts, ends, strict=True)
    ]


def _shaped(part: Array, leaf: Array) -> Array:
    return part if leaf.ndim == 1 else part.reshape(leaf.shape)


def length_for(count: int) -> int:
    """Return the length of the array that so many numbers, at most the longest, are padded to."""
    return LENGTHS[bisect_left(LENGTHS, count)]


def _numbers(program: Program) -> range:
    """Return the places of the number attributes among the leaves."""
    first = len(program.op.inputs)
    return range(first, first + len(program.op.attrs.number_names()))


def _row(arrays: Sequence[Array], start: int, count: int) -> Array:
    """Return arrays side by side, or a part of a single one, filled up to one of the lengths with its last number.

    That is in the op's domain, whatever this may be.
    """
    length = length_for(count)
    if len(arrays) == 1:
        part = arrays[0].reshape(-1)[start : start + count]
        if count == length and part.ctypes.data % ALIGNMENT == 0:
            return part
        arrays = [part]
    row = _room(length, arrays[0].dtype)
    np.concatenate([array if array.ndim == 1 else array.reshape(-1) for array in arrays], out=row[:count])
    row[count:] = row[count - 1]
    return row


def _room(length: int, dtype: np.dtype[Any]) -> Array:
    """Return new memory, aligned where it is so much that TensorFlow should not copy it."""
    if length <= LENGTHS[0]:
        return np.empty(length, dtype)
    return aligned(length * dtype.itemsize).view(dtype)


def _asked_for(found: Found, length: int, count: int) -> Found:
    """Return the results without what fills them up, and without shapes, which have been checked here.

    Raises ``NotElementwise``.
    """
    kept: Found = {}
    for key, value in found.items():
        what, name = key
        tells = str(what).endswith("shape")
        if value is not None and (shape := tuple(value.tolist()) if tells else value.shape) != (length,):
            raise NotElementwise(f"{name} has shape {list(shape)}, and the inputs {[length]}")
        if not tells:
            kept[key] = value if value is None else value[:count]
    return kept


def _concatenated(parts: Sequence[Found], key: Key) -> Array | None:
    values = [value for value in (part[key] for part in parts) if value is not None]
    return np.concatenate(values) if values else None
