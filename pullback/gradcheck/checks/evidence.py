"""What the values on a line say of a numeric derivative: that they are constant, hardly move, or oscillate.

The estimate of a derivative takes what a function changes by less than the square root of its noise for no change, and
measures noise at all of its steps. Servers have much noise and few steps: a large constant in their values, such as
that of a log-likelihood, and a function that oscillates between the steps need a closer look.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from pullback.dtypes import Array
from pullback.gradcheck.numeric import COVERAGE, NO_DIGITS, Slopes, Status

Functions = Callable[[Array], Array]

ROUNDING = 2.0**-40
"""The noise that only rounding makes, relative to the terms of a number: more may hide a derivative."""


@dataclass
class Line:
    """Functions of a step, and the values that they had: steps (S,) and values (S, P)."""

    functions: Functions
    steps: list[Array] = field(default_factory=list[Array])
    values: list[Array] = field(default_factory=list[Array])

    def __call__(self, steps: Array) -> Array:
        """Return the values at ``steps`` (S, P), which are the same for all functions, and keep them."""
        found = self.functions(steps)
        self.steps.append(steps[:, 0])
        self.values.append(found)
        return found

    def judged(self, found: Slopes, noise: Array, terms: Array | float = 0.0) -> Slopes:
        """Return derivatives with the statuses that the values suggest; ``noise`` (P,) is that of each value.

        A function that moves by the rounding of its ``terms`` (P,) alone is constant.
        """
        steps, values = np.concatenate(self.steps), np.concatenate(self.values)
        middle = self.values[0][0]
        with np.errstate(invalid="ignore", over="ignore"):
            moved = np.abs(values - middle)
            rounding = np.where(noise <= ROUNDING * terms, COVERAGE * noise, 0.0)
            is_constant = (moved <= rounding).all(axis=0)
            slope = np.nanmax(moved, axis=0, initial=0.0) / np.abs(steps).max()
            has_digits = found.error <= NO_DIGITS * np.fmax(np.abs(found.value), slope)
            oscillates = _contradicted(found, steps, values, noise)
        status, is_ok = found.status.copy(), found.status == Status.OK
        status[is_ok & ~has_digits] = Status.NO_DIGITS
        # A derivative with one digit can still look wrong.
        status[oscillates & ((status == Status.OK) | (status == Status.NO_DIGITS))] = Status.CONTRADICTION
        status[is_constant] = Status.OK
        # Rounding hides what moves the values by less.
        value = np.where(is_constant, 0.0, found.value)
        error = np.where(is_constant, np.fmax(noise, rounding) / np.abs(steps).max(), found.error)
        return Slopes(value, error, status, found.evaluations)


def _contradicted(found: Slopes, steps: Array, values: Array, noise: Array) -> Array:
    """Return whether the differences at the two smallest steps to both sides exclude a derivative."""
    if not (steps < 0).any():
        return np.zeros_like(found.value, bool)
    smallest, next_size = np.unique(steps[steps > 0])[:2]
    near, far = ((values[steps == h][0] - values[steps == -h][0]) / (2 * h) for h in (smallest, next_size))
    bar: Array = COVERAGE * (found.error + noise / smallest + np.abs(near - far))
    return np.abs(near - found.value) > bar
