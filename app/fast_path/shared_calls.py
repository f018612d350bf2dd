"""Shared calls: several requests, computed in one TensorFlow call.

Only this module knows how the leaves of several requests become those of one call, and how its results are divided
again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.autodiff import padding
from app.autodiff.point import Spec
from app.autodiff.programs import Program
from app.runtime.modes import Key, KeyedArrays
from app.tensors.fast_json import FlatNumbers
from ops import Array


@dataclass(frozen=True, eq=False)
class SharedCall:
    """What evaluations that may share a call have in common: the program, and the request without its tensors.

    The leaves of the program are tensors of ``dtype``, and after those of the inputs, the number attributes. The
    numbers of the requests follow each other in one row, padded to one of ``lengths``; at most ``most`` of them share a
    call.
    """

    program: Program
    spec: Spec
    dtype: np.dtype[Any]
    lengths = padding.LENGTHS
    most = padding.SHARED

    def run(self, requests: Sequence[Sequence[FlatNumbers | Array]], count: int) -> KeyedArrays:
        """Return the results for the tensors of each request, in all ``count`` numbers for each leaf.

        Raises ``ValueError`` for another count, ``NotTraced``, ``padding.NotElementwise``, and whatever TensorFlow
        raises.
        """
        program, spec, start = self.program, self.spec, 0
        rows = np.empty((len(requests[0]), padding.length_for(count)), self.dtype)
        for row, parts in zip(rows, zip(*requests, strict=True), strict=True):
            if set(map(type, parts)) == {list}:
                row[:count] = np.array(list(chain.from_iterable(parts)), np.float64)
            else:
                # Each by itself: on its way through float64, a signalling NaN of float32 would become a quiet one.
                start = 0
                for part in parts:
                    row[start : start + len(part)] = part
                    start += len(part)
                if start != count:
                    raise ValueError(f"expected {count} numbers, got {start}")
            row[count:] = row[count - 1]
        first = len(program.op.inputs)
        leaves = [*rows[:first], *spec.numbers, *rows[first:]]
        return padding.run_row(program, spec.mode, leaves, spec.device, count)

    def rows(self, results: KeyedArrays, keys: Sequence[Key], start: int, shape: tuple[int, int]) -> list[NDArray[Any]]:
        """Return the results with these keys for the requests whose numbers begin at ``start``, a row for each.

        ``shape`` is the number of requests, and of the numbers of each.
        """
        found, stop = list[NDArray[Any]](), start + shape[0] * shape[1]
        for key in keys:
            result = results[key]
            assert result is not None
            found.append(result[start:stop].reshape(shape))
        return found
