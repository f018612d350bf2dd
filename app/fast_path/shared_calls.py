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

from app.autodiff.packing import Packing
from app.runtime.modes import Key, KeyedArrays
from app.tensors.fast_json import FlatNumbers
from ops import Array


@dataclass(frozen=True, eq=False)
class SharedCall:
    """What evaluations that may share a call have in common: their packing, and the leaves that are equal for all.

    The other leaves are tensors of ``dtype``. The numbers of the requests follow each other in one row, padded to one
    of the lengths of the packing.
    """

    packing: Packing
    same: Sequence[Array | None]
    dtype: np.dtype[Any]

    def run(self, requests: Sequence[Sequence[FlatNumbers | Array]], count: int) -> KeyedArrays:
        """Return the results for the tensors of each request, in all ``count`` numbers for each leaf.

        Raises ``ValueError`` for another count, ``NotTraced``, ``NotPackable``, and whatever TensorFlow raises.
        """
        start = 0
        rows = np.empty((len(requests[0]), self.packing.length_for(count)), self.dtype)
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
        tensors = iter(rows)
        leaves = [next(tensors) if leaf is None else leaf for leaf in self.same]
        return self.packing.run_call(leaves, count)

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
