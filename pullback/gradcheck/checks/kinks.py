"""A gradient at a kink in one number: a value far from the slopes of the two sides is wrong.

The kink must be that of the number itself, as of relu(x): it stays where it is as all other numbers move. Of kinks that
meet in one point, as those of hidden units at 0, a sum of right values may be outside of the slopes. So may that of
several kinks in one number, which no call can tell from one kink: frameworks differentiate x + relu(x) - 0.1 relu(-x)
as 1 at 0, where the slopes are 1.1 and 2. So far is a value that is further from the slopes, and from 0, than these are
from each other.

A function may be smooth along a line through the kinks of equal numbers, as max(x, y) + min(x, 0) is in x where both
are 0. A gradient by a framework is of some of the pieces that meet there, and its number in x may be another.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pullback.dtypes import Array
from pullback.gradcheck.numeric import COVERAGE, Slopes, Status

AWAY, PLACES = 0.25, 2
"""How far the other numbers move, as a fraction of them, zeros as one of 1, and how often."""
DIRECTIONS = 4
"""How many random directions show kinks, of which a function may have none along some."""
NEAR = 2.0**-10
"""The first step, as a fraction of that of a numeric derivative: kinks of other numbers may be close by."""
Estimate = Callable[[Mapping[str, Array], int], Slopes]
"""Returns the slopes at inputs, on both sides for 0, or on the side 1 or -1."""


class Moved(NamedTuple):
    """Inputs, and the name of the one that moves, with its direction."""

    inputs: Mapping[str, Array]
    name: str
    by: Array

    def away(self, seed: int) -> dict[str, Array]:
        """Return inputs of which all numbers have moved, but one that moves alone."""
        rng = np.random.default_rng(seed)
        found = {
            key: x + AWAY * rng.uniform(0.5, 1.0, x.shape) * np.where(x == 0, 1.0, x) for key, x in self.inputs.items()
        }
        is_alone = np.count_nonzero(self.by) == 1
        return (
            found | {self.name: np.where(self.by != 0, self.inputs[self.name], found[self.name])} if is_alone else found
        )

    def is_tied(self) -> bool:
        """Return whether a number that moves is 0, or of the size of another."""
        sizes = np.abs(np.concatenate([x.ravel() for x in self.inputs.values()]))
        return any(x == 0 or (sizes == abs(x)).sum() > 1 for x in self.inputs[self.name][self.by != 0])


def judged(found: Slopes, estimate: Estimate, moved: Moved, gradient: tuple[Array, Array]) -> Slopes:
    """Return slopes, that of the nearer side where there is a kink and the ``gradient`` is far from both.

    The gradient has its error bar.
    """
    analytic, bar = gradient
    at_kink = found.status == Status.KINK
    if not at_kink.any():
        return found
    own = at_kink
    for seed in range(PLACES):
        own = own & (estimate(moved.away(seed), 0).status == Status.KINK)
        if not own.any():
            return found
    sides = [estimate(moved.inputs, side) for side in (1, -1)]
    own &= np.all([side.status == Status.OK for side in sides], axis=0)
    right, left = (side.value for side in sides)
    low, high = np.fmin(np.fmin(right, left), 0.0), np.fmax(np.fmax(right, left), 0.0)
    error = np.fmax(sides[0].error, sides[1].error)
    allowed = high - low + COVERAGE * error + bar
    is_wrong = own & ~((analytic >= low - allowed) & (analytic <= high + allowed))
    nearest = np.where(np.abs(analytic - right) <= np.abs(analytic - left), right, left)
    return replace(
        found,
        value=np.where(is_wrong, nearest, found.value),
        error=np.where(is_wrong, error, found.error),
        status=np.where(is_wrong, Status.OK, found.status),
    )


def of_others(
    found: Slopes,
    across: Callable[[int], Slopes],
    slope_and_gradient: Callable[[Mapping[str, Array]], tuple[Slopes, Array]],
    moved: Moved,
    gradient: tuple[Array, Array],
) -> Slopes:
    """Return slopes, ``KINK`` where a gradient is wrong only because the function has kinks along other lines.

    It is right where these numbers have moved away, and the function has kinks ``across`` the line, in some random
    direction. ``slope_and_gradient`` returns both along the line at other inputs.
    """
    analytic, bar = gradient

    def is_right(slopes: Slopes, analytic: Array) -> Array:
        with np.errstate(invalid="ignore"):
            return np.abs(analytic - slopes.value) <= COVERAGE * slopes.error + bar

    is_doubtful = (found.status == Status.OK) & np.isfinite(analytic) & ~is_right(found, analytic)
    if not is_doubtful.any() or not moved.is_tied():
        return found
    is_doubtful &= np.any([across(seed).status == Status.KINK for seed in range(DIRECTIONS)], axis=0)
    for seed in range(PLACES):
        if not is_doubtful.any():
            return found
        slopes, there = slope_and_gradient(moved.away(seed))
        is_doubtful &= (slopes.status == Status.OK) & is_right(slopes, there)
    return replace(found, status=np.where(is_doubtful, Status.KINK, found.status))
