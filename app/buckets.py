"""Elementwise programs, whatever the shapes: flattened, laid side by side, padded to one of a few lengths.

Vectorised kernels treat the end of an array in another way than its middle, so that the same numbers may differ in
their last bit alone and in company. Where a length is a multiple of a vector's they do not, wherever they stand: so one
call may serve many, a single one is padded as well, and a large one is cut into pieces that stay in the cache.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from app import modes
from app.modes import Key
from app.programs import Program
from ops import Array, Mode

Found: TypeAlias = dict[Key, Array | None]

# Each length is a trace, or with XLA a compilation. The last is that of the pieces of what is longer.
LENGTHS = (1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18)
SHARED = 1 << 14
"""How many numbers calls may share. What is longer pays for itself."""
ALIGNMENT = 64
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
    joined = [column[0] if i in numbers else _joined(column) for i, column in enumerate(columns)]
    parts: list[Found] = []
    for start in range(0, sum(counts), LENGTHS[-1]):
        piece = slice(start, start + LENGTHS[-1])
        leaves = [leaf if i in numbers else _padded(leaf[piece]) for i, leaf in enumerate(joined)]
        length, count = len(leaves[0]), len(joined[0][piece])
        found = modes.run(program, mode, leaves, device)
        parts.append(_asked_for(found, length, count))
    whole = parts[0] if len(parts) == 1 else {key: _concatenated(parts, key) for key in parts[0]}
    items, ends = whole.items(), np.cumsum(counts).tolist()
    return [
        {key: value if value is None else value[end - count : end].reshape(leaves[0].shape) for key, value in items}
        for leaves, count, end in zip(members, counts, ends, strict=True)
    ]


def length_for(count: int) -> int:
    """Return the length of the array that so many numbers, at most the longest, are padded to."""
    return next(length for length in LENGTHS if length >= count)


def _numbers(program: Program) -> range:
    """Return the places of the number attributes among the leaves."""
    first = len(program.op.inputs)
    return range(first, first + len(program.op.attrs.number_names()))


def _joined(arrays: Sequence[Array]) -> Array:
    if len(arrays) == 1:
        return arrays[0].reshape(-1)
    return np.concatenate([array.reshape(-1) for array in arrays])


def _padded(row: Array) -> Array:
    """Return a row in aligned memory, of one of the lengths, its last number repeated: that is in the op's domain."""
    length = length_for(len(row))
    if len(row) == length and row.ctypes.data % ALIGNMENT == 0:
        return row
    padded = _aligned(length, row.dtype)
    padded[: len(row)] = row
    padded[len(row) :] = row[-1]
    return padded


def _aligned(length: int, dtype: np.dtype[Any]) -> Array:
    raw = np.empty(length * dtype.itemsize + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + length * dtype.itemsize].view(dtype)


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
