"""The arrays of the results at many points: a row for each point."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np

from app.autodiff.absent import Absent
from app.errors import PullbackError, wrong
from ops import Array

Leaf: TypeAlias = Array | Absent


@dataclass(eq=False)
class Rows:
    """The arrays of the results at all points, in the order of ``leaves_of``, and the result at one of them."""

    example: Any
    arrays: list[Leaf]

    @classmethod
    def like(cls, example: Any, leaves: Sequence[Leaf], count: int) -> "Rows":
        """Return rows for as many results like this one."""
        return cls(example, [x if isinstance(x, Absent) else np.empty((count, *x.shape), x.dtype) for x in leaves])

    def put(self, index: int, result: Any) -> None:
        """Set the row of a point; raises ``Unprocessable`` if it does not fit."""
        for whole, leaf in zip(self.arrays, leaves_of(result), strict=True):
            if isinstance(whole, Absent) or isinstance(leaf, Absent) or whole.shape[1:] != leaf.shape:
                if whole is leaf:
                    continue
                message = "the points have results of different shapes, which cannot be one array"
                raise wrong(("inputs",), message, expected=_shape(whole, 1), got=_shape(leaf))
            whole[index] = leaf

    def whole(self, shape: tuple[int, ...], failed: Mapping[int, PullbackError]) -> Any:
        """Return the result with the leading axes of points in each array."""
        for array in self.arrays if failed else ():
            if not isinstance(array, Absent):
                array[[*failed]] = _nothing(array.dtype)
        own = [x if isinstance(x, Absent) else x.reshape(*shape, *x.shape[1:]) for x in self.arrays]
        return _rebuilt(self.example, iter(own))


def leaves_of(result: Any) -> Iterator[Leaf]:
    """Yield the arrays of a result, and its reasons for missing ones."""
    if isinstance(result, dict):
        for value in cast("dict[str, Any]", result).values():
            yield from leaves_of(value)
    elif isinstance(result, list | tuple):
        for value in cast("Sequence[Any]", result):
            yield from leaves_of(value)
    else:
        yield result


def _rebuilt(example: Any, leaves: Iterator[Leaf]) -> Any:
    """Return a result like the example, with other leaves."""
    if isinstance(example, dict):
        return {name: _rebuilt(value, leaves) for name, value in cast("dict[str, Any]", example).items()}
    if isinstance(example, list | tuple):
        parts = [_rebuilt(value, leaves) for value in cast("Sequence[Any]", example)]
        return parts if isinstance(example, list) else tuple(parts)
    return next(leaves)


def _nothing(dtype: np.dtype[Any]) -> Any:
    """Return what stands in the rows of points that failed."""
    if dtype.kind in "iu":
        return np.iinfo(dtype).min
    return False if dtype.kind == "b" else np.nan


def _shape(leaf: Leaf, axes: int = 0) -> str:
    return str(leaf) if isinstance(leaf, Absent) else str(list(leaf.shape[axes:]))
