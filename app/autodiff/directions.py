"""Directions as rows: where rows are independent, each direction at a point is the only one at a copy of the point.

So evaluations with a few directions, and small Jacobians and Hessians, share calls with others.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from app.autodiff.binding import moved
from app.autodiff.padded_rows import ROWS, axes_of_rows
from app.autodiff.point import Arrays, Point
from app.runtime.modes import KeyedArrays
from ops import Array

# Limits on one call with many directions: numbers (32 MB of float64), and multiply-adds (about a second).
CALL_ELEMENTS = 1 << 22
CALL_COST = 1 << 33


def per_call(point: Point) -> int:
    """Return how many directions one call may have, which bounds its memory and time."""
    outputs = [shape or () for shape in point.output_shapes.values()]
    per_row = point.size + sum(map(math.prod, outputs))
    return max(1, min(CALL_ELEMENTS // (per_row + 1), CALL_COST // (point.cost + 1)))


def copies(
    point: Point, seeds: Sequence[Arrays], have_rows: Sequence[Mapping[str, bool]]
) -> tuple[Point, tuple[Arrays, ...]] | None:
    """Return a point with a copy of each row for each direction, and seeds with one direction for each row.

    The last of the ``seeds`` has a leading axis of directions. ``have_rows`` says for each seed whether it has rows;
    the seed of a shared input has none. Return ``None`` if there are more rows than a call has, or none, or if
    a direction has no rows.
    """
    *before, last = seeds
    shared, axes = point.op.shared, axes_of_rows(point)
    count, rows = len(next(iter(last.values()))), math.prod(_front(point, axes))
    if not 0 < count * rows <= ROWS or not all(have_rows[-1].values()):
        return None

    def copied(x: Array) -> Array:
        own = x.reshape(rows, *x.shape[axes:])
        return np.broadcast_to(own, (count, *own.shape)).reshape(count * rows, *own.shape[1:])

    inputs = {name: x if name in shared else copied(x) for name, x in point.inputs.items()}
    tiled = [
        {name: copied(x) if has_rows[name] else x for name, x in some.items()}
        for some, has_rows in zip(before, have_rows, strict=False)
    ]
    flat = {name: x.reshape(count * rows, *x.shape[1 + axes :]) for name, x in last.items()}
    return moved(point, inputs), (*tiled, flat)


def of_point(point: Point, level: int, results: KeyedArrays) -> KeyedArrays:
    """Return the results of the copies of a point as those of the point; at the last ``level``, by direction."""
    front = _front(point, axes_of_rows(point))
    rows, found = math.prod(front), dict[tuple[str | int, str], Array | None]()
    for key, value in results.items():
        if value is None:
            found[key] = None
        elif key[0] == level:
            found[key] = value.reshape((-1, *front, *value.shape[1:]))
        else:
            found[key] = value[:rows].reshape((*front, *value.shape[1:]))
    return found


def _front(point: Point, axes: int) -> tuple[int, ...]:
    """Return the sizes of the axes of rows."""
    own: Mapping[str, Array] = {name: x for name, x in point.inputs.items() if name not in point.op.shared}
    return next(iter(own.values())).shape[:axes]
