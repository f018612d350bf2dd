"""A gradient at a kink in one number: a value far from the slopes of the two sides is wrong.

The kink must be that of the number itself, as of relu(x): it stays where it is as all other numbers move. Of kinks that
meet in one point, as those of hidden units at 0, a sum of right values may be outside of the slopes. So may that of
several kinks in one number, which no call can tell from one kink: frameworks differentiate x + relu(x) - 0.1 relu(-x)
as 1 at 0, where the slopes are 1.1 and 2. So far is a value that is further from the slopes, and from 0, than these are
from each other.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from pullback.dtypes import Array
from pullback.gradcheck.numeric import COVERAGE, Slopes, Status

AWAY, PLACES = 0.25, 2
"""How far the other numbers move, as a fraction of them, zeros as one of 1, and how often."""
NEAR = 2.0**-10
"""The first step, as a fraction of that of a numeric derivative: kinks of other numbers may be close by."""
Estimate = Callable[[Mapping[str, Array], int], Slopes]
"""Returns the slopes at inputs, on both sides for 0, or on the side 1 or -1."""


def judged(
    found: Slopes,
    estimate: Estimate,
    inputs: Mapping[str, Array],
    moved: tuple[str, Array],
    gradient: tuple[Array, Array],
) -> Slopes:
    """Return slopes, that of the nearer side where there is a kink and the ``gradient`` is far from both.

    ``moved`` is the name of an input and the direction of the number; the gradient has its error bar.
    """
    analytic, bar = gradient
    at_kink = found.status == Status.KINK
    if not at_kink.any():
        return found
    own = at_kink
    for seed in range(PLACES):
        own = own & (estimate(_away(inputs, *moved, seed), 0).status == Status.KINK)
        if not own.any():
            return found
    sides = [estimate(inputs, side) for side in (1, -1)]
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


def _away(inputs: Mapping[str, Array], name: str, by: Array, seed: int) -> dict[str, Array]:
    """Return inputs of which all numbers but one have moved."""
    rng = np.random.default_rng(seed)
    found = {key: x + AWAY * rng.uniform(0.5, 1.0, x.shape) * np.where(x == 0, 1.0, x) for key, x in inputs.items()}
    return found | {name: np.where(by != 0, inputs[name], found[name])}
