"""Shared calls: the numbers of several requests, computed in one TensorFlow call."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.autodiff import padding
from app.autodiff.point import Spec
from app.autodiff.programs import Program
from app.fast_path.bodies import Numbers
from app.runtime.modes import KeyedArrays
from ops import Array


@dataclass(frozen=True, eq=False)
class SharedCall:
    """What evaluations that may share a call have in common: the program, and the request without its tensors.

    The leaves of the program are tensors of ``dtype``, and after those of the inputs, the number attributes.
    """

    program: Program
    spec: Spec
    dtype: np.dtype[Any]

    def run(self, columns: Sequence[Sequence[Numbers | Array]], count: int) -> KeyedArrays:
        """Return the results for ``count`` numbers: each column has the parts of one leaf, those of all requests.

        Raises ``NotTraced``, ``padding.NotElementwise``, and whatever TensorFlow raises.
        """
        program, spec = self.program, self.spec
        rows = np.empty((len(columns), padding.length_for(count)), self.dtype)
        for row, parts in zip(rows, columns, strict=True):
            row[:count] = _joined(parts, self.dtype)
            row[count:] = row[count - 1]
        first = len(program.op.inputs)
        leaves = [*rows[:first], *spec.numbers, *rows[first:]]
        return padding.run_row(program, spec.mode, leaves, spec.device, count)


def _joined(parts: Sequence[Numbers | Array], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return lists and arrays of numbers as one array, of this dtype or of float64."""
    if len(parts) == 1:
        return np.asarray(parts[0], None if isinstance(parts[0], np.ndarray) else np.float64)
    if set(map(type, parts)) == {list}:
        return np.array(list(chain.from_iterable(parts)), np.float64)
    # Each by itself: on its way through float64, a signalling NaN of float32 would become a quiet one.
    arrays = [np.asarray(part, None if isinstance(part, np.ndarray) else np.float64) for part in parts]
    return np.concatenate([array.astype(dtype, copy=False) for array in arrays])
