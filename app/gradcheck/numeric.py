"""Numeric differentiation that knows how far it may be off, of many scalar functions at once.

Central differences D(h) = (φ(h) - φ(-h)) / 2h on a ladder of steps, each half the one before, are extrapolated to h = 0
by Richardson's tableau (Ridders, "Accurate computation of F'(x) and F'(x) F''(x)", 1982). Every entry has an error bar:
how far it is from its two parents, and the noise of φ, which the weights of the entry amplify by 1/h. The entry with
the least bar counts, wherever on the ladder it stands: there are as many starts as rungs. The rungs below it are its
anchors: where they tell another slope, and their noise cannot excuse them, the tableau was fooled (by a function that
oscillates faster than its steps), and the search goes on below.

At a kink the slopes of the two sides differ however small the step is; at a jump the slope grows like 1/h. Both have no
derivative, and the estimate says so.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Along: TypeAlias = Callable[[Floats], NDArray[Any]]
"""Steps of shape (S, P), one column a function, to values of the same shape."""

RUNGS, FEWEST_RUNGS = 30, 5
"""How many steps: the last is 2⁻²⁹ of the first, or what a narrower dtype can still add to a number."""
COLUMNS = 7
"""How often an entry is extrapolated at most: the error is then of order h¹⁴."""
DOUBT = 4.0
"""How many error bars apart two estimates of one slope contradict each other."""
FOOLED = 32.0
"""How many error bars a smaller step must be off to show that the larger ones were fooled: such are off by far."""
RIVALS = 8.0
"""How many times as long as the least bar that of an entry may be which is as good."""
QUIET = 6
"""How many of the least steps tell a jump, or that a function stands still."""
LESSER = 14
"""How many of the lesser steps tell the noise."""
JUMP = 1e3
"""How many roundings are no noise any more."""
NO_DIGITS = 0.01
"""The relative error from which on an estimate tells nothing."""


class Trouble(StrEnum):
    """Why a function has no derivative at a point, or none that can be told numerically."""

    NONE = "none"
    KINK = "kink"
    JUMP = "jump"
    NOT_FINITE = "not finite"
    NO_DIGITS = "no digits"
    CONTRADICTION = "estimates differ"


@dataclass(frozen=True)
class Slopes:
    """The derivatives of P functions at 0, each with its error bar (both of shape (P,)) and what is wrong there."""

    value: Floats
    error: Floats
    trouble: NDArray[np.object_]
    evaluations: int


def slopes(along: Along, scale: Floats, unit: float) -> Slopes:
    """Return the derivatives at 0 of the functions that ``along`` evaluates.

    ``scale`` (P,) is the largest step of each: the function is asked within ±scale. ``unit`` is the relative error of
    its values: the distance of neighbouring numbers in the dtype that it is computed in.
    """
    count = rungs(unit)
    steps = np.ldexp(1.0, -np.arange(count))[:, None] * scale
    values = np.asarray(along(np.concatenate([np.zeros((1, len(scale))), steps, -steps])), np.float64)
    middle, right, left = values[0], values[1 : count + 1], values[count + 1 :]
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        return _estimated(middle, right, left, steps, unit)


def rungs(unit: float) -> int:
    """Return how many steps there are for values of this relative error: the least is a few of its units."""
    return min(RUNGS, max(FEWEST_RUNGS, int(-math.log2(unit)) - 4))


def _estimated(middle: Floats, right: Floats, left: Floats, steps: Floats, unit: float) -> Slopes:
    central = (right - left) / (2 * steps)
    size = np.fmax(np.abs(middle), np.fmax(np.abs(right), np.abs(left)))
    noise = np.fmax(unit * size, np.fmax(_noise(central, steps), _stair(middle, right, left)))
    value, error = _extrapolated(central, noise / steps)
    trouble = np.full(middle.shape, Trouble.NONE, dtype=object)
    trouble[~(error <= NO_DIGITS * np.fmax(np.abs(value), _natural(middle, right, left, unit) / steps[0]))] = (
        Trouble.NO_DIGITS
    )
    trouble[_is_kink(middle, right, left, steps, noise)] = Trouble.KINK
    trouble[_is_jump(right - left, unit * size[-1])] = Trouble.JUMP
    # The least steps must stay where the function is finite; the large ones may leave its domain.
    trouble[~np.isfinite(np.stack([middle, right[-1], left[-1]])).all(axis=0)] = Trouble.NOT_FINITE
    return Slopes(value, error, trouble, evaluations=(2 * len(steps) + 1) * middle.size)


def _natural(middle: Floats, right: Floats, left: Floats, unit: float) -> Floats:
    """Return what counts as a change: how much the function moves, and where it does not, half of its digits."""
    moved = np.fmax.reduce(np.fmax(np.abs(right - middle), np.abs(left - middle)))
    return np.fmax(moved, np.sqrt(unit) * np.abs(middle))


def _noise(central: Floats, steps: Floats) -> Floats:
    """Return how far a value may be off, as the lesser steps show, where nothing but noise moves.

    D(h) and D(h/2) differ by noise / h there; what a fast function still moves is of order h⁶ once extrapolated twice.
    """
    once = central[1:] + np.diff(central, axis=0) / 3
    twice = once[1:] + np.diff(once, axis=0) / 15
    moved = np.abs(np.diff(twice[-LESSER:], axis=0))
    return np.fmax.reduce(moved * steps[-len(moved) :])


def _stair(middle: Floats, right: Floats, left: Floats) -> Floats:
    """Return the height of the stair where a function that rounds inside stands still at the least steps, else 0.

    Its values are alike there, as if it were flat and without noise; the least move that it makes tells how coarse
    they are.
    """
    moves = np.abs(np.concatenate([right - middle, left - middle]))
    still = ~np.concatenate([right[-QUIET:] - middle, left[-QUIET:] - middle]).any(axis=0)
    height = np.where(moves > 0, moves, np.inf).min(axis=0)
    return np.where(still & np.isfinite(height), height, 0.0)


def _extrapolated(central: Floats, noise: Floats) -> tuple[Floats, Floats]:
    """Return the entry of Richardson's tableau with the least error bar, and the bar."""
    values, errors = [central], [np.vstack([np.full_like(central[:1], np.inf), np.abs(np.diff(central, axis=0))])]
    amplified = noise
    for m in range(1, COLUMNS + 1):
        parent, weight = values[-1], 4.0**m
        entry = np.full_like(central, np.nan)
        entry[m:] = parent[m:] + (parent[m:] - parent[m - 1 : -1]) / (weight - 1)
        amplified = amplified * (weight + 0.5) / (weight - 1)
        distance = np.maximum(np.abs(entry - parent), np.abs(entry - np.roll(parent, 1, axis=0)))
        values.append(entry)
        errors.append(distance + amplified)
    errors[0] = errors[0] + noise
    table, bars = np.stack(values), np.stack(errors)
    bars[~np.isfinite(table) | np.isnan(bars)] = np.inf
    return _anchored(table, bars, central, noise)


def _anchored(table: Floats, bars: Floats, central: Floats, noise: Floats) -> tuple[Floats, Floats]:
    """Return the best entry that no smaller step contradicts."""
    change = np.vstack([np.full_like(central[:1], np.inf), np.abs(np.diff(central, axis=0))])
    rungs = np.arange(len(central))[:, None]
    while True:
        flat = bars.reshape(-1, bars.shape[2])
        best = flat.argmin(axis=0)
        value, error = _picked(table.reshape(flat.shape), best), _picked(flat, best)
        below = np.isfinite(error) & (rungs > best % len(central))
        against = below & (np.abs(central - value) > FOOLED * (error + noise + change))
        if not against.any():
            return value, np.fmax(error, _spread(table.reshape(flat.shape), flat, value, error))
        # The tableau was fooled down to the first rung that contradicts it: it starts anew there.
        last = np.where(against, rungs, -1).max(axis=0)
        bars[:, (rungs < last) & against.any(axis=0)] = np.inf


def _spread(table: Floats, bars: Floats, value: Floats, error: Floats) -> Floats:
    """Return how far the rivals of the best entry are from it: of many bars the least is too short, by chance."""
    apart = np.where(bars <= RIVALS * error, np.abs(table - value), 0.0)
    return np.fmax.reduce(apart)


def _picked(rows: Floats, at: NDArray[np.intp]) -> Floats:
    """Return from each column the row that is named for it."""
    return np.take_along_axis(rows, at[None], axis=0)[0]


def _is_kink(middle: Floats, right: Floats, left: Floats, steps: Floats, noise: Floats) -> NDArray[np.bool_]:
    """Tell where the slopes of the two sides differ by a gap that does not close as h goes to 0."""
    gap = (right - 2 * middle + left) / steps
    # Of a smooth function the gap is h φ'': extrapolated to h = 0 nothing is left of it.
    rest = 2 * gap[1:] - gap[:-1]
    bar = np.abs(np.diff(rest, axis=0)) + 12 * (noise / steps)[2:]
    bar[np.isnan(bar)] = np.inf
    best = bar.argmin(axis=0)
    return np.abs(_picked(rest[1:], best)) > DOUBT * _picked(bar, best)


def _is_jump(apart: Floats, rounding: Floats) -> NDArray[np.bool_]:
    """Tell where the two sides stay apart, by the same amount however near they come."""
    last = apart[-QUIET:]
    least, most = np.abs(last).min(axis=0), np.abs(last).max(axis=0)
    return (least > JUMP * rounding) & (least > 0.5 * most) & (np.abs(np.sign(last).sum(axis=0)) == QUIET)
