"""Numeric differentiation of many scalar functions at once, with an error bar on each derivative.

Central differences D(h) = (φ(h) - φ(-h)) / 2h at a sequence of steps, each half the one before, are extrapolated to
h = 0 by Richardson's tableau (Ridders, "Accurate computation of F'(x) and F'(x) F''(x)", 1982). The error bar of an
entry is its distance from the two entries that it is made of, plus the noise of φ, amplified by 1/h and the weights of
the entry. The result is the entry with the smallest error bar in any row, so any row is a possible start. The rows
below it, with smaller steps, check it. If their differences contradict it by more than their noise explains, φ
oscillates faster than the larger steps sample it, and the search continues below.

Noise that is measured at tiny steps can be too small: a function that cancels inside is a staircase, constant over
intervals that are wider than tiny steps. Then larger steps agree on another slope. If the rounding error that a stable
algorithm may have explains the difference, the error bar covers it. It does so, too, where that error is larger than
all that the function moves.

At a kink the slopes of the two sides differ however small the step is; at a jump the slope grows like 1/h. Neither has
a derivative, and the estimate says so.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Functions: TypeAlias = Callable[[Floats], NDArray[Any]]
"""P functions φ of a step: from steps of shape (S, P), one column for each function, to values of the same shape."""

MAX_STEPS, MIN_STEPS = 30, 5
"""The number of steps: the last is 2⁻²⁹ of the first, or in a narrower dtype what it can still add to a number."""
COLUMNS = 7
"""The most extrapolations of an entry: its error is then of order h¹⁴."""
COVERAGE = 4.0
"""The coverage factor: two estimates of one slope contradict each other if they are this many error bars apart."""
UNDERSAMPLED = 32.0
"""How many error bars off the difference at a smaller step is if larger steps undersample the function."""
RIVALS = 8.0
"""An entry is as good as the best one if its error bar is at most this many times as long."""
SMALLEST_STEPS, SMALLER_STEPS = 6, 14
"""How many of the smallest steps show a jump, or that a function is constant; and how many measure the noise."""
JUMP = 1e3
"""A difference of more than this many roundings is not noise."""
NO_DIGITS = 0.01
"""The relative error above which an estimate has no usable digits."""


class Status(StrEnum):
    """Whether a function has a derivative at a point that can be determined numerically, or why not."""

    OK = "ok"
    KINK = "kink"
    JUMP = "jump"
    NOT_FINITE = "not finite"
    NO_DIGITS = "no digits"
    FLAT = "constant nearby"
    UNDERFLOW = "underflow"
    CONTRADICTION = "estimates differ"
    TOLERANCE = "off by no more than a solver's tolerance"


@dataclass(frozen=True)
class Slopes:
    """The derivatives of P functions at 0, each with its error bar and its status, all of shape (P,)."""

    value: Floats
    error: Floats
    status: NDArray[np.object_]
    evaluations: int


def slopes(
    functions: Functions,
    scale: Floats,
    unit: float,
    rounding: Floats | float = 0.0,
    *,
    least: float = float(np.finfo(np.float64).tiny),
    count: int = MAX_STEPS,
    sides: Floats | None = None,
) -> Slopes:
    """Return the derivatives of functions at 0.

    ``scale`` (P,) is the largest step of each function, which is evaluated within ±scale. ``unit`` is the relative
    error of its values: the distance between neighbouring numbers of the dtype that it is computed in. ``rounding``,
    (P,) or a number, bounds the rounding error of its values; 0 stands for no more than what the values show. Values
    under ``least`` may be flushed to 0.

    ``count`` is the most steps, at least ``MIN_STEPS``: each takes two evaluations, and with fewer, error bars are
    wider. ``sides`` (P,) is 1 or -1 for a function that has no values on the other side of 0, where its domain ends,
    and 0 for any other: the slope of such a function is that on its side.
    """
    # The smallest step is a few units.
    count = min(count, max(MIN_STEPS, int(-math.log2(unit)) - 4))
    steps = np.ldexp(1.0, -np.arange(count))[:, None] * scale
    at, sides = (
        np.concatenate([np.zeros((1, len(scale))), steps, -steps]),
        np.zeros(len(scale)) if sides is None else sides,
    )
    values = np.asarray(functions(np.where(sides, sides * np.abs(at), at)), np.float64)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        # Differences of large values, divided by small steps, would overflow.
        _, exponents = np.frexp(np.where(np.isfinite(values), np.abs(values), 0.0).max(axis=0, initial=0.0))
        bounds = np.ldexp(np.broadcast_to(rounding, scale.shape), -exponents)
        found = _estimate(np.ldexp(values, -exponents), steps, unit, bounds, np.ldexp(least, -exponents), sides=sides)
        value, error = np.ldexp(found.value, exponents), np.ldexp(found.error, exponents)
        return replace(found, value=value, error=error)


def _estimate(values: Floats, steps: Floats, unit: float, rounding: Floats, least: Floats, *, sides: Floats) -> Slopes:
    middle, right, left = values[0], values[1 : len(steps) + 1], values[len(steps) + 1 :]
    # An odd function has the same slope on both sides; its central differences have errors of all orders of h.
    right, left = np.where(sides < 0, 2 * middle - right, right), np.where(sides > 0, 2 * middle - left, left)
    central, ratio = (right - left) / (2 * steps), np.where(sides, 2.0, 4.0)
    size = np.fmax(np.abs(middle), np.fmax(np.abs(right), np.abs(left)))
    stair = _stair(middle, right, left)
    measured = np.fmax(unit * size, np.fmax(_noise(central, steps, ratio), stair)) * (4 / ratio)
    noise = np.fmax(measured, least)
    moves = np.fmax(np.abs(right - middle), np.abs(left - middle))
    value, error, may_be_rounding = _extrapolate(central, noise / steps, rounding / steps, moves / steps, ratio)
    noise = np.where(may_be_rounding, np.fmax(noise, rounding), noise)
    # How far the function moves or, if it does not, half of its digits: a smaller change counts as none.
    change = np.fmax.reduce(moves)
    change = np.fmax(change, np.sqrt(unit) * np.abs(middle))
    # A function that is 0, or flushed to 0, has a slope of 0.
    has_digits = (error <= NO_DIGITS * np.fmax(np.abs(value), change / steps[0])) | (size.max(axis=0) <= least)
    status = np.full(middle.shape, Status.OK, dtype=object)
    # A staircase and a kink nearby look alike if the function is constant between: neither slope is proven.
    status[~has_digits] = np.where(stair > 0, Status.FLAT, Status.NO_DIGITS)[~has_digits]
    status[~has_digits & (least > measured.max(axis=0))] = Status.UNDERFLOW
    status[_is_kink(middle, right, left, steps, noise)] = Status.KINK
    # A spike between the smallest steps, as near a pole, stands apart from both sides.
    is_jump = _is_jump(right - left, unit * size[-1]) | _is_jump(right - 2 * middle + left, unit * size[-1])
    status[is_jump] = Status.JUMP
    # The function must be finite at the smallest steps; large steps may leave its domain.
    status[~np.isfinite(np.stack([middle, right[-1], left[-1]])).all(axis=0)] = Status.NOT_FINITE
    return Slopes(value, error, status, evaluations=(2 * len(steps) + 1) * middle.size)


def _noise(central: Floats, steps: Floats, ratio: Floats) -> Floats:
    """Return how far a value may be off, as measured at the smaller steps, where only noise changes the values.

    D(h) and D(h/2) differ by noise / h there; after two extrapolations, the remaining change of a fast function is of
    order h⁶.
    """
    once = central[1:] + np.diff(central, axis=0) / (ratio - 1)
    twice = once[1:] + np.diff(once, axis=0) / (ratio**2 - 1)
    moved = np.abs(np.diff(twice[-SMALLER_STEPS:], axis=0))
    return np.fmax.reduce(moved * steps[-len(moved) :])


def _stair(middle: Floats, right: Floats, left: Floats) -> Floats:
    """Return the height of a stair if a function that rounds inside is constant at the smallest steps, else 0.

    Its values are equal there, as if it were constant and without noise. Its smallest change is their resolution.
    """
    moves = np.abs(np.concatenate([right - middle, left - middle]))
    still = ~np.concatenate([right[-SMALLEST_STEPS:] - middle, left[-SMALLEST_STEPS:] - middle]).any(axis=0)
    height = np.where(moves > 0, moves, np.inf).min(axis=0)
    return np.where(still & np.isfinite(height), height, 0.0)


def _extrapolate(
    central: Floats, noise: Floats, rounding: Floats, moves: Floats, ratio: Floats
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Return the best entry of Richardson's tableau, its error bar, and whether rounding may explain the slope.

    ``noise`` and ``rounding`` (S, P) are those of the differences ``central``; ``moves`` are the larger of the
    differences on both sides; ``ratio`` is by how much the error of ``central`` falls with each step.
    """
    table, bars = _tableau(central, noise, ratio)
    value, error, best = _best_entry(table, bars.copy(), central, noise)
    has_larger_step = np.arange(len(central))[:, None] < best
    apart = np.abs(table - value)
    explained = apart <= _pick(rounding, best)
    is_staircase = np.any(has_larger_step & explained & (apart > COVERAGE * (bars + error)), axis=(0, 1))
    if is_staircase.any():
        table, bars = _tableau(central, np.fmax(noise, rounding), ratio)
        other, its_error, _ = _best_entry(table, bars, central, np.fmax(noise, rounding))
        error = np.where(is_staircase, np.fmax(error, np.abs(other - value) + its_error), error)
    # A term that rounds to a constant shows no noise: 1 + erf is exactly 0 in its tail.
    is_lost = _pick(moves, best) < _pick(rounding, best)
    error = np.where(is_lost, np.fmax(error, _pick(rounding, best)), error)
    return value, error, is_staircase | is_lost


def _tableau(central: Floats, noise: Floats, ratio: Floats) -> tuple[Floats, Floats]:
    """Return the entries of Richardson's tableau, (columns, S, P), and the error bar of each."""
    values, errors = [central], [np.vstack([np.full_like(central[:1], np.inf), np.abs(np.diff(central, axis=0))])]
    amplified = noise
    for m in range(1, COLUMNS + 1):
        parent, weight = values[-1], ratio**m
        entry = np.full_like(central, np.nan)
        entry[m:] = parent[m:] + (parent[m:] - parent[m - 1 : -1]) / (weight - 1)
        amplified = amplified * (weight + 0.5) / (weight - 1)
        distance = np.maximum(np.abs(entry - parent), np.abs(entry - np.roll(parent, 1, axis=0)))
        values.append(entry)
        errors.append(distance + amplified)
    errors[0] = errors[0] + noise
    table, bars = np.stack(values), np.stack(errors)
    bars[~np.isfinite(table) | np.isnan(bars)] = np.inf
    return table, bars


def _best_entry(table: Floats, bars: Floats, central: Floats, noise: Floats) -> tuple[Floats, Floats, NDArray[np.intp]]:
    """Return the best entry that no smaller step contradicts, its error bar, and its row."""
    change = np.vstack([np.full_like(central[:1], np.inf), np.abs(np.diff(central, axis=0))])
    rows = np.arange(len(central))[:, None]
    while True:
        flat = bars.reshape(-1, bars.shape[2])
        best = flat.argmin(axis=0)
        entries = table.reshape(flat.shape)
        value, error = _pick(entries, best), _pick(flat, best)
        below = np.isfinite(error) & (rows > best % len(central))
        # A smooth function is nearer to its slope at a smaller step; the changes of a wave are as large as it is off.
        off = np.abs(central - value)
        against = below & (off > UNDERSAMPLED * (error + noise + np.fmin(change, _pick(off, best % len(central)))))
        if not against.any():
            # The smallest of many error bars is too short, by chance: it is extended to the rivals of the best entry.
            rivals = np.where(flat <= RIVALS * error, np.abs(entries - value), 0.0)
            return value, np.fmax(error, np.fmax.reduce(rivals)), best % len(central)
        # The steps above the last row that contradicts the entry undersample the function: the search restarts there.
        last = np.where(against, rows, -1).max(axis=0)
        bars[:, (rows < last) & against.any(axis=0)] = np.inf


def _pick(rows: Floats, at: NDArray[np.intp]) -> Floats:
    """Return from each column the row that ``at`` selects."""
    return np.take_along_axis(rows, at[None], axis=0)[0]


def _is_kink(middle: Floats, right: Floats, left: Floats, steps: Floats, noise: Floats) -> NDArray[np.bool_]:
    """Return where the slopes of the two sides differ by a gap that does not close as h goes to 0."""
    gap = (right - 2 * middle + left) / steps
    # The gap of a smooth function is h φ'', which extrapolates to 0 at h = 0.
    rest = 2 * gap[1:] - gap[:-1]
    bar = np.abs(np.diff(rest, axis=0)) + 12 * (noise / steps)[2:]
    bar[np.isnan(bar)] = np.inf
    best = bar.argmin(axis=0)
    return np.abs(_pick(rest[1:], best)) > COVERAGE * _pick(bar, best)


def _is_jump(apart: Floats, rounding: Floats) -> NDArray[np.bool_]:
    """Return where the two sides stay apart by the same amount, however small the step."""
    last = apart[-SMALLEST_STEPS:]
    least, most = np.abs(last).min(axis=0), np.abs(last).max(axis=0)
    return (least > JUMP * rounding) & (least > 0.5 * most) & (np.abs(np.sign(last).sum(axis=0)) == SMALLEST_STEPS)
