"""Elementwise programs on leaves of any shape: flattened, concatenated and padded to one of a few lengths.

Vectorised kernels process the tail of an array differently from its body, so the last bit of a result may depend on its
position and on the array's length. If the length is a multiple of the vector width, it does not. So one call can serve
many evaluations, a single evaluation is padded too, and a long array is split into pieces that fit in the cache.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from app.autodiff.packing import KEPT, NotPackable, Shape
from app.autodiff.programs import Program
from app.runtime import modes
from app.runtime.modes import KeyedArrays
from app.runtime.owned_cache import OwnedCache
from app.tensors.casting import ALIGNMENT, aligned
from ops import Array, Mode

# Each length costs a trace, or a compilation with XLA. Longer arrays are split into pieces of the last length.
LENGTHS = (1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18)
SHARED = 1 << 14
"""The most numbers that an evaluation in a shared call may have; a longer one justifies its own call."""


@dataclass(eq=False)
class PaddedNumbers:
    """The packing of an elementwise program; a unit is one number."""

    program: Program
    mode: Mode
    device: str
    units: tuple[Shape | None, ...]
    runs_inline: dict[int, bool] = field(default_factory=dict[int, bool])
    why_not = ""
    lengths = LENGTHS
    most = SHARED

    def length_for(self, count: int) -> int:
        """Return the length that ``count`` numbers are padded to; those beyond the last length run in pieces."""
        return LENGTHS[bisect_left(LENGTHS, count)] if count <= LENGTHS[-1] else count

    def pad(self, leaf: int, tensor: Array, count: int) -> None:
        """Repeat the last number, which is in the op's domain, whatever that is."""
        del leaf
        tensor[count:] = tensor[count - 1]

    def run(self, members: Sequence[Sequence[Array]]) -> list[KeyedArrays]:
        """Run the program for several members; each has leaves of one shape, and all have equal number attributes.

        Raises ``NotPackable`` if the op changes the shape, and whatever ``modes.run`` raises.
        """
        columns, total, start = list(zip(*members, strict=True)), 0, 0
        for leaves in members:
            total += leaves[0].size
        parts: list[KeyedArrays] = []
        while start < total:
            left = total - start
            index = bisect_left(LENGTHS, min(left, LENGTHS[-1]))
            # A long piece fills at least half of its length: to compute twice as many numbers takes longer than a call.
            if LENGTHS[index] > max(SHARED, 2 * left):
                index -= 1
            length = LENGTHS[index]
            piece: list[Array] = []
            for unit, column in zip(self.units, columns, strict=True):
                piece.append(column[0] if unit is None else _row(column, start, min(left, length), length))
            parts.append(self.run_call(piece, min(left, length)))
            start += length
        whole = parts[0]
        for key in whole if len(parts) > 1 else ():
            values = [value for part in parts if (value := part[key]) is not None]
            whole[key] = np.concatenate(values) if values else None
        if len(members) == 1 and members[0][0].ndim == 1:
            return [whole]
        results: list[KeyedArrays] = []
        end = 0
        for leaves in members:
            start, end, shape = end, end + leaves[0].size, leaves[0].shape
            results.append({key: None if row is None else row[start:end].reshape(shape) for key, row in whole.items()})
        return results

    def run_call(self, leaves: Sequence[Array], count: int) -> KeyedArrays:
        """Return the first ``count`` numbers of the results for leaves of one of the lengths; raises as ``run``."""
        kept: KeyedArrays = {}
        for key, value in modes.run(self.program, self.mode, leaves, self.device).items():
            is_check = isinstance(key[0], str)
            shape = leaves[0].shape if value is None else tuple(value.tolist()) if is_check else value.shape
            if shape != leaves[0].shape:
                raise NotPackable(f"{key[1]} has shape {list(shape)}, and the inputs {list(leaves[0].shape)}")
            if not is_check:
                kept[key] = None if value is None else value[:count]
        return kept


_packings = OwnedCache[tuple[Mode, str], PaddedNumbers](KEPT)


def padded_numbers(program: Program, mode: Mode, device: str) -> PaddedNumbers:
    """Return the packing of an elementwise program."""
    if (known := _packings.get(program, (mode, device))) is not None:
        return known
    numbers = program.op.attrs.number_names()
    units = tuple(None if name in numbers else () for name in program.leaf_names)
    return _packings.keep(program, (mode, device), PaddedNumbers(program, mode, device, units))


def _row(arrays: Sequence[Array], start: int, count: int, length: int) -> Array:
    """Return the arrays concatenated, or ``count`` numbers of a single one, padded to ``length`` with the last number.

    The last number is in the op's domain, whatever that is. A long row is aligned, so that TensorFlow does not copy it.
    """
    dtype, parts = arrays[0].dtype, arrays
    if len(arrays) == 1:
        part = arrays[0].reshape(-1)[start : start + count]
        if count == length and part.ctypes.data % ALIGNMENT == 0:
            return part
        parts = [part]
    row = np.empty(length, dtype) if length <= LENGTHS[0] else aligned(length * dtype.itemsize).view(dtype)
    if len(parts) == 1:
        row[:count] = parts[0]
    else:
        np.concatenate([part.reshape(-1) for part in parts], out=row[:count])
    row[count:] = row[count - 1]
    return row
