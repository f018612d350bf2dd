"""Shared calls: several requests, computed in one TensorFlow call.

Only this module knows how the leaves of several requests become those of one call, and how its results are divided
again.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from app.autodiff.derived import origin
from app.autodiff.packing import Packing, Shape
from app.runtime.modes import Key, KeyedArrays
from app.runtime.refused import REFUSED, require_allowed
from app.telemetry.accounts import Owner
from app.tensors.skeletons import FlatNumbers
from ops import Array


@dataclass(frozen=True, eq=False)
class SharedCall:
    """What evaluations that may share a call have in common: their packing, the parameters and number attributes.

    ``numbers`` has these, with ``None`` for each tensor. The tensors have ``dtypes``. Those without a unit in the
    packing, an input that all rows use, must be equal for all requests of a call. ``owner`` is the op. For a posted
    graph, or put parameters, ``is_kept`` notes that it is used, and returns whether it is still there; ``is_gone`` only
    looks.
    """

    packing: Packing
    numbers: Sequence[Array | None]
    dtypes: Sequence[np.dtype[Any]]
    owner: Owner
    is_kept: Callable[[], bool] | None = None
    is_gone: Callable[[], bool] | None = None

    @cached_property
    def units(self) -> tuple[Shape | None, ...]:
        """The shape of one unit of each tensor, ``None`` for one that is equal for all requests of a call."""
        pairs = zip(self.packing.units, self.numbers, strict=True)
        return tuple(unit for unit, number in pairs if number is None)

    @cached_property
    def positions(self) -> tuple[int, ...]:
        """The position of each tensor among the leaves."""
        return tuple(index for index, number in enumerate(self.numbers) if number is None)

    @cached_property
    def shared(self) -> tuple[int, ...]:
        """The tensors that must be equal for all requests of a call."""
        return tuple(index for index, unit in enumerate(self.units) if unit is None)

    def run(
        self, requests: Sequence[Sequence[FlatNumbers | Array]], count: int, shapes: Sequence[Shape] = ()
    ) -> KeyedArrays:
        """Return the results for the tensors of each request, which have ``count`` units in all.

        The tensors that are equal for all requests have the shapes in ``shapes``. Raises ``ValueError`` for another
        count, ``NotTraced``, ``NotPackable``, and whatever TensorFlow raises.
        """
        packing, length, leaves = self.packing, self.packing.length_for(count), list(self.numbers)
        if REFUSED:
            require_allowed(origin(packing.program.op)[0])
        columns = zip(self.positions, self.units, self.dtypes, zip(*requests, strict=True), strict=True)
        for index, (position, unit, dtype, parts) in enumerate(columns):
            if unit is None:
                leaves[position] = np.asarray(parts[0], dtype).reshape(shapes[index])
                continue
            tensor = leaves[position] = np.empty((length, *unit) if packing.most > 1 else unit, dtype)
            size = count * math.prod(unit)
            _fill(tensor.reshape(-1)[:size], parts)
            if size < tensor.size:
                packing.pad(position, tensor, count)
        return packing.run_call(cast("list[Array]", leaves), count)

    def rows(self, results: KeyedArrays, keys: Sequence[Key], start: int, shape: tuple[int, int]) -> list[NDArray[Any]]:
        """Return the results with these keys for the requests whose units begin at ``start``, a row for each.

        ``shape`` is the number of requests, and of the units of each.
        """
        stop = start + shape[0] * shape[1]
        found: list[NDArray[Any]] = []
        for key in keys:
            result = results[key]
            assert result is not None
            part = result[start:stop] if self.packing.most > 1 else result
            found.append(part.reshape(shape[0], part.size // shape[0]))
        return found


def _fill(row: Array, parts: Sequence[FlatNumbers | Array]) -> None:
    """Write the numbers of all parts to a row; raise ``ValueError`` for another count."""
    if set(map(type, parts)) == {list}:
        numbers = np.array(list(chain.from_iterable(parts)), np.float64)
        if len(numbers) != len(row):
            raise ValueError(f"expected {len(row)} numbers, got {len(numbers)}")
        row[:] = numbers
        return
    # NumPy casts each part by itself: on its way through float64, a signalling NaN of float32 would become a quiet one.
    np.concatenate([np.asarray(part, np.float64) if isinstance(part, list) else part for part in parts], out=row)
