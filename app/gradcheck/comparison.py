"""A gradient beside what it claims to be: the numeric derivative of a function, or a formula."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from app.autodiff.point import blame_op
from app.gradcheck import rounding
from app.gradcheck.numeric import DOUBT, NO_DIGITS, RUNGS, Slopes, Trouble, slopes
from app.gradcheck.rows import numbers_of
from app.gradcheck.sample import Arrays, Sample, nowhere
from app.gradcheck.target import Target
from app.gradcheck.verdict import Comparison
from ops import Array

Function: TypeAlias = Callable[[Arrays], Arrays]

# Coordinates that are moved one by one in a row each, as those of elementwise ops need not be.
COORDINATES = 32
DIRECTIONS = 3
# A vector that is larger is moved along one direction only.
LARGE = 1 << 16
# The first step, as a part of the number that moves; and the second opinion's, as a part of the first.
REACH, NEARER = 0.25, 1 / 8
# As a part of a slope, the error that leaves it a digit.
ONE_DIGIT = 0.5


@dataclass(frozen=True)
class Differentiated:
    """What is differentiated: the sum of a function's results, weighted, in some leaves.

    ``function`` takes and returns arrays with rows first; the leaves that it is not given stay where they are.
    """

    function: Function
    leaves: Arrays
    weights: Arrays


@dataclass(frozen=True)
class Gradient:
    """A gradient that is under test: its parts by leaf, how far rounding may put each off, and where they are told."""

    parts: Arrays
    bounds: Arrays
    comparisons: Mapping[str, Comparison]
    troubles: dict[str, Array] = field(default_factory=dict[str, Array])
    """Found by ``compare``: what is wrong with the numeric derivative at the coordinates that it chose."""
    doubts: Arrays = field(default_factory=dict[str, Array])
    """Known before: troubles that make a comparison worthless, coordinate by coordinate."""
    single: bool = True
    """Whether coordinates are moved one by one where that takes a row each."""
    everywhere: bool = False
    """Whether directions go through all numbers of a large elementwise op as well."""


def compare(target: Target, subsample: Sample, gradient: Gradient, of: Callable[[Sample], Differentiated]) -> None:
    """Compare a gradient with the numeric derivative at a subsample, by coordinates and along random directions.

    ``of(sample)`` is what is differentiated there. The coordinates are those of the subsample.
    """
    differentiated, whole = of(subsample), target.whole(subsample)
    for name in gradient.parts if gradient.single or subsample.is_elementwise else ():
        _compare_coordinates(target, subsample, name, gradient, differentiated)
    if not subsample.is_elementwise:
        _compare_directions(target, gradient, differentiated)
    elif gradient.everywhere and subsample is not whole:
        _compare_directions(target, gradient, of(whole))


def compare_with_formula(target: Target, sample: Sample, gradient: Gradient, formula: Function) -> None:
    """Compare a gradient with a formula, which is itself a float64 computation and rounds."""
    inputs = {name: np.asarray(sample.point.inputs[name], np.float64) for name in gradient.parts}
    rng = np.random.default_rng(0)
    with blame_op(sample.point.op, "claim"), np.errstate(all="ignore"):
        expected = formula(inputs)
        units = rounding.units(formula, inputs, rng, elementwise=sample.is_elementwise, ones=lambda name: 1.0)
    for name, part in gradient.parts.items():
        value = np.broadcast_to(expected.get(name, np.zeros(())), part.shape)
        exact = rounding.eps("float64") * units[name] if name in units else 0.0
        allowed = widened(target, gradient.bounds[name] + exact, value)
        gradient.comparisons[name].add(part, value, allowed, x=inputs[name], index=sample.index(name))


def widened(target: Target, allowed: Any, value: Array) -> Array:
    """Return a bound with the tolerances that were asked for on top."""
    with np.errstate(invalid="ignore"):
        return allowed + target.options.absolute + target.options.relative * np.abs(np.nan_to_num(value))


def row_by_row(sample: Sample, function: Function) -> Function:
    """Return a NumPy function of one point as one of many, rows first."""

    def of_rows(moved: Arrays) -> Arrays:
        with blame_op(sample.point.op, "claim"), np.errstate(all="ignore"):
            if sample.is_elementwise:
                return {
                    name: np.broadcast_to(y, next(iter(moved.values())).shape) for name, y in function(moved).items()
                }
            count = len(next(iter(moved.values())))
            rows = [function({name: x[i] for name, x in moved.items()}) for i in range(count)]
            return {name: np.stack([row[name] for row in rows]) for name in rows[0]}

    return of_rows


def _compare_coordinates(target: Target, sample: Sample, name: str, gradient: Gradient, of: Differentiated) -> None:
    x = np.asarray(of.leaves[name], np.float64).ravel()
    chosen = _chosen(target, sample, x.size)
    if not len(chosen):
        return
    ask = _elementwise(of, name) if sample.is_elementwise else _single(of, name, chosen)
    analytic, bar = (
        np.asarray(sample.select(values[name]), np.float64).ravel()[chosen]
        for values in (gradient.parts, gradient.bounds)
    )
    comparison = gradient.comparisons[name]
    found = _Question(ask, _scale(x[chosen]), rounding.eps(target.widest)).answer(analytic, bar)
    place = sample.index(name)
    comparison.add(
        analytic,
        found.value,
        widened(target, DOUBT * found.error + bar, found.value),
        trouble=_either(_troubled(found), gradient.doubts.get(name)),
        settled=_settled(analytic, found, bar),
        x=x[chosen],
        index=lambda i: place(int(chosen[i])),
    )
    comparison.evaluations += found.evaluations
    gradient.troubles[name] = _troubled(found)


def _settled(analytic: Array, found: Slopes, bar: Array) -> Array:
    """Tell where agreement proves something: within the numeric bar alone, or within a hundredth of the numbers."""
    with np.errstate(invalid="ignore"):
        size = np.fmax(np.abs(analytic), np.abs(found.value))
        near = np.abs(analytic - found.value) <= DOUBT * found.error
        narrow = DOUBT * found.error + bar <= NO_DIGITS * size
    return (near | narrow) & (found.trouble != Trouble.NO_DIGITS)


def _troubled(found: Slopes) -> Array:
    """Return what makes a slope worthless; one with a digit left may still tell a number that is far off."""
    with np.errstate(invalid="ignore"):
        has_one = DOUBT * found.error <= ONE_DIGIT * np.abs(found.value)
    return np.where((found.trouble == Trouble.NO_DIGITS) & has_one, Trouble.NONE, found.trouble)


def _either(trouble: Array, doubt: Array | None) -> Array:
    return trouble if doubt is None else np.where(doubt != Trouble.NONE, doubt, trouble)


@dataclass(frozen=True)
class _Question:
    """Functions to differentiate: how they are asked, the largest step of each, and the rounding of their values."""

    ask: Callable[[Array], Array]
    scale: Array
    unit: float

    def answer(self, analytic: Array, bar: Array) -> Slopes:
        """Return the slopes; where a gradient seems wrong, ask again nearer: two estimates that differ tell nothing."""
        found = slopes(self.ask, self.scale, self.unit)
        with np.errstate(invalid="ignore"):
            right = np.abs(analytic - found.value) <= DOUBT * found.error + bar
        doubtful = (_troubled(found) == Trouble.NONE) & ~right
        if not doubtful.any():
            return found
        nearer = slopes(self.ask, self.scale * NEARER, self.unit)
        with np.errstate(invalid="ignore"):
            apart = np.abs(nearer.value - found.value) > DOUBT * (nearer.error + found.error)
        trouble = np.where(doubtful & apart, Trouble.CONTRADICTION, found.trouble)
        trouble = np.where(doubtful & (_troubled(nearer) != Trouble.NONE), nearer.trouble, trouble)
        return Slopes(found.value, found.error, trouble, found.evaluations + nearer.evaluations)


def _compare_directions(target: Target, gradient: Gradient, of: Differentiated) -> None:
    """Compare along random directions in each leaf: what no coordinate was chosen for counts there."""
    rng = np.random.default_rng([target.options.seed, 1])
    for name, part in gradient.parts.items():
        x = np.asarray(of.leaves[name], np.float64)
        if not x.size:
            continue
        count = 1 if x.size > LARGE else DIRECTIONS
        signs = rng.uniform(0.25, 1, (count, *x.shape)) * rng.choice([-1.0, 1.0], (count, *x.shape))
        d = signs * _scale(x)
        axes = tuple(range(1, d.ndim))
        analytic, bar = (d * part).sum(axis=axes), (np.abs(d) * gradient.bounds[name]).sum(axis=axes)
        found = _Question(_directed(of, name, d), np.ones(count), rounding.eps(target.widest)).answer(analytic, bar)
        allowed = widened(target, DOUBT * found.error + bar, found.value)
        comparison = gradient.comparisons[name]
        settled = _settled(analytic, found, bar)
        comparison.add(analytic, found.value, allowed, trouble=_troubled(found), settled=settled, index=nowhere)
        comparison.evaluations += found.evaluations


def _chosen(target: Target, sample: Sample, size: int) -> Array:
    """Return the coordinates to move one by one: all, or a sample where that would be too much work."""
    rows = target.options.work // max(1, numbers_of(sample.point), sample.point.cost)
    most = min(COORDINATES, max(1, rows // (2 * RUNGS + 1)))
    if sample.is_elementwise or size <= most:
        return np.arange(size)
    return np.sort(np.random.default_rng(target.options.seed).choice(size, most, replace=False))


def _scale(x: Array) -> Array:
    """Return the first step of each number: a power of two, so that all steps are exact."""
    size = np.where((x == 0) | ~np.isfinite(x), 1.0, np.abs(x))
    return 2.0 ** np.floor(np.log2(REACH * size))


def _elementwise(of: Differentiated, name: str) -> Callable[[Array], Array]:
    """Move all numbers at once: each result depends on its own place alone."""
    at = {leaf: np.asarray(x, np.float64).ravel() for leaf, x in of.leaves.items()}
    weights = {y: np.asarray(w, np.float64).ravel() for y, w in of.weights.items()}

    def along(steps: Array) -> Array:
        moved = {leaf: np.broadcast_to(x, steps.shape) for leaf, x in at.items()}
        values = of.function({**moved, name: at[name] + steps})
        with np.errstate(invalid="ignore", over="ignore"):
            parts = [np.asarray(values[y], np.float64).reshape(steps.shape) * w for y, w in weights.items()]
            return np.sum(parts, axis=0)

    return along


def _single(of: Differentiated, name: str, chosen: Array) -> Callable[[Array], Array]:
    """Move one number at a time, a row each."""
    x = np.asarray(of.leaves[name], np.float64)

    def along(steps: Array) -> Array:
        rows = np.repeat(x.reshape(1, -1), steps.size, axis=0)
        rows[np.arange(steps.size), np.tile(chosen, len(steps))] += steps.ravel()
        return _weighted(of, name, rows.reshape(steps.size, *x.shape)).reshape(steps.shape)

    return along


def _directed(of: Differentiated, name: str, d: Array) -> Callable[[Array], Array]:
    """Move all numbers of a leaf along each direction, a few rows at a time."""
    x = np.asarray(of.leaves[name], np.float64)

    def along(steps: Array) -> Array:
        few = max(1, LARGE // max(1, x.size))
        chunks = [steps[start : start + few] for start in range(0, len(steps), few)]
        columns = [
            np.concatenate([_weighted(of, name, x + _column(chunk[:, i], x.ndim) * d[i]) for chunk in chunks])
            for i in range(len(d))
        ]
        return np.stack(columns, axis=1)

    return along


def _column(steps: Array, ndim: int) -> Array:
    return steps.reshape(-1, *(1,) * ndim)


def _weighted(of: Differentiated, name: str, rows: Array) -> Array:
    values, count = of.function({name: rows}), len(rows)
    with np.errstate(invalid="ignore", over="ignore"):
        return np.sum(
            [np.asarray(values[y], np.float64).reshape(count, -1) @ _flat(w) for y, w in of.weights.items()], axis=0
        )


def _flat(w: Array) -> Array:
    return np.asarray(w, np.float64).ravel()
