"""The scalar functions that a numeric derivative differentiates, along the directions in which their leaves move."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from app.autodiff.point import Arrays
from ops import Array
from pullback.gradcheck.numeric import Functions

Function: TypeAlias = Callable[[Arrays], Arrays]
"""From inputs or other leaves by name to results by name."""

# A leaf with more numbers than this is moved along one direction only.
LARGE = 1 << 16


@dataclass(frozen=True)
class Objective:
    """The scalar function to differentiate: the weighted sum of a function's results, as a function of its leaves.

    ``function`` takes and returns arrays with rows first; leaves that it is not given keep their values. ``dtype`` is
    that in which it computes; ``bounds`` are the rounding errors that its results may have, by result.
    """

    function: Function
    leaves: Arrays
    weights: Arrays
    bounds: Arrays
    dtype: str

    def rounding(self, *, elementwise: bool) -> Array:
        """Return the rounding error of the sum: one for each element of an elementwise op, else one number."""
        terms = [np.abs(np.asarray(w, np.float64)) * self.bounds[y] for y, w in self.weights.items()]
        with np.errstate(invalid="ignore", over="ignore"):
            return np.sum(terms, axis=0).ravel() if elementwise else np.asarray(sum(map(np.sum, terms)))


def moved(x: Array, change: Array) -> Array:
    """Return x + change; where nothing changes, -0 stays -0, which may lie on the other side of a cut."""
    return np.where(change == 0, x, x + change)


def move_all(objective: Objective, name: str) -> Functions:
    """Move all numbers of a leaf at once: each result depends only on the numbers at its own index."""
    at = {leaf: np.asarray(x, np.float64) for leaf, x in objective.leaves.items()}

    def functions(steps: Array) -> Array:
        shape = len(steps), *at[name].shape
        rows = {leaf: np.broadcast_to(x, shape) for leaf, x in at.items()}
        values = objective.function({**rows, name: moved(at[name], steps.reshape(shape))})
        with np.errstate(invalid="ignore", over="ignore"):
            terms = [
                np.asarray(values[y], np.float64) * np.asarray(w, np.float64) for y, w in objective.weights.items()
            ]
            return np.sum(terms, axis=0).reshape(steps.shape)

    return functions


def move_one(objective: Objective, name: str, coordinates: Array) -> Functions:
    """Move one number of a leaf at a time, one row each."""
    x = np.asarray(objective.leaves[name], np.float64)

    def functions(steps: Array) -> Array:
        rows = np.broadcast_to(x.ravel(), (steps.size, x.size)).copy()
        some = np.arange(steps.size), np.broadcast_to(coordinates, steps.shape).ravel()
        rows[some] = moved(rows[some], steps.ravel())
        return _weighted_sum(objective, {name: rows.reshape(steps.size, *x.shape)}).reshape(steps.shape)

    return functions


def move_along(objective: Objective, name: str, directions: Array) -> Functions:
    """Move all numbers of a leaf along each direction, a few rows at a time."""
    x = np.asarray(objective.leaves[name], np.float64)
    few = max(1, LARGE // max(1, x.size))

    def functions(steps: Array) -> Array:
        rows = steps.reshape(*steps.shape, *(1,) * x.ndim)
        columns = [
            np.concatenate(
                [_weighted_sum(objective, {name: moved(x, rows[i : i + few, k] * d)}) for i in range(0, len(rows), few)]
            )
            for k, d in enumerate(directions)
        ]
        return np.stack(columns, axis=1)

    return functions


def move_together(objective: Objective, direction: Arrays) -> Functions:
    """Move all numbers of several leaves along one direction."""
    at = {name: np.asarray(objective.leaves[name], np.float64) for name in direction}

    def functions(steps: Array) -> Array:
        rows = {name: moved(x, steps.reshape(-1, *(1,) * x.ndim) * direction[name]) for name, x in at.items()}
        return _weighted_sum(objective, rows).reshape(steps.shape)

    return functions


def _weighted_sum(objective: Objective, rows: Arrays) -> Array:
    values, count = objective.function(rows), len(next(iter(rows.values())))
    with np.errstate(invalid="ignore", over="ignore"):
        terms = [
            np.asarray(values[y], np.float64).reshape(count, -1) @ np.asarray(w, np.float64).ravel()
            for y, w in objective.weights.items()
        ]
        return np.sum(terms, axis=0)
