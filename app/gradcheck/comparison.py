"""Compare a gradient with its claim: the numeric derivative of a function, or a formula."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from app.autodiff.point import Arrays, blame_op
from app.gradcheck import rounding
from app.gradcheck.numeric import DOUBT, NO_DIGITS, RUNGS, Slopes, Trouble, slopes
from app.gradcheck.objective import LARGE, Function, Objective, move_all, move_along, move_one
from app.gradcheck.reproduce import Calls, along_directions
from app.gradcheck.rows import numbers_of
from app.gradcheck.sample import Sample, nowhere
from app.gradcheck.target import Target
from app.gradcheck.verdict import Comparison
from ops import Array

# The most coordinates that are moved one by one, one row each, at the examples' attributes and at others; elementwise
# ops have no such limit.
COORDINATES, COORDINATES_OF_TRIED = 32, 8
DIRECTIONS = 3
# The first step, as a fraction of the number that it moves; and the first step of the second estimate, as a fraction
# of that.
REACH, NEARER = 0.25, 1 / 8
# How far points nearby are, as a fraction of the first step, how many, and how much another slope differs, relatively.
NEARBY, DRAWS, CLEARLY = 2.0**-8, 16, 0.05
# The error, as a fraction of a slope, that leaves the slope one digit.
ONE_DIGIT = 0.5


@dataclass(frozen=True)
class Gradient:
    """A gradient under test: by leaf, its parts, their rounding bounds and the comparisons that collect the results."""

    parts: Arrays
    bounds: Arrays
    comparisons: Mapping[str, Comparison]
    troubles: dict[str, Array] = field(default_factory=dict[str, Array])
    """Set by ``compare``: the trouble of the numeric derivative at each coordinate that it checked."""
    doubts: Arrays = field(default_factory=dict[str, Array])
    """Troubles known beforehand that make a comparison meaningless, by coordinate."""
    single: bool = True
    """Whether to move coordinates one by one when each takes a row of its own."""
    calls: Callable[[str], Calls] | None = None
    """The calls that reproduce each part."""


def compare(target: Target, subsample: Sample, gradient: Gradient, objective: Callable[[Sample], Objective]) -> None:
    """Compare a gradient with the numeric derivative at a subsample, by coordinates and along random directions.

    ``objective(sample)`` returns the function to differentiate there. The coordinates are those of the subsample.
    """
    nearby = objective(subsample)
    for name in gradient.parts if gradient.single or subsample.is_elementwise else ():
        _compare_coordinates(target, subsample, name, gradient, nearby)
    if not subsample.is_elementwise:
        _compare_directions(target, gradient, nearby)


def compare_with_formula(target: Target, sample: Sample, gradient: Gradient, formula: Function) -> None:
    """Compare a gradient with a formula, which is itself a float64 computation and rounds."""
    inputs = {name: np.asarray(sample.point.inputs[name], np.float64) for name in gradient.parts}
    rng = np.random.default_rng(0)
    with blame_op(sample.point.op, "claim"), np.errstate(all="ignore"):
        expected = formula(inputs)
        units = rounding.measured(
            lambda sets: list(map(formula, sets)), inputs, rng, elementwise=sample.is_elementwise, ones=lambda name: 1.0
        ).units
        values = {
            name: np.broadcast_to(expected.get(name, np.zeros(())), part.shape) for name, part in gradient.parts.items()
        }
    for name, part in gradient.parts.items():
        value = values[name]
        formula_error = rounding.eps("float64") * units[name] if name in units else 0.0
        allowed = add_tolerances(target, gradient.bounds[name] + formula_error, value)
        calls = gradient.calls and gradient.calls(name)
        gradient.comparisons[name].add(part, value, allowed, x=inputs[name], index=sample.index(name), calls=calls)


def add_tolerances(target: Target, bound: Any, value: Array) -> Array:
    """Return an error bound for ``value`` plus the tolerances of the request."""
    with np.errstate(invalid="ignore"):
        return bound + target.options.absolute + target.options.relative * np.abs(np.nan_to_num(value))


def slope_at(target: Target, sample: Sample, objective: Objective, name: str, at: int) -> Slopes:
    """Return the derivative of an objective with respect to the number at flat position ``at`` of a leaf."""
    x, place = np.ravel(np.asarray(objective.leaves[name], np.float64)), np.array([at])
    along, scale = move_one(objective, name, place), _scale(x[place])
    of_values = objective.rounding(elementwise=False)
    if sample.is_elementwise:
        along, scale, of_values = move_all(objective, name), _scale(x), objective.rounding(elementwise=True)
    found = slopes(along, scale, rounding.eps(target.widest), of_values)
    if not sample.is_elementwise:
        return found
    return Slopes(found.value[place], found.error[place], found.trouble[place], found.evaluations)


def row_by_row(sample: Sample, function: Function) -> Function:
    """Turn a NumPy function of one point into a function of many points, rows first."""

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


def _compare_coordinates(
    target: Target, subsample: Sample, name: str, gradient: Gradient, objective: Objective
) -> None:
    x = np.asarray(objective.leaves[name], np.float64).ravel()
    coordinates = _coordinates(target, subsample, x.size)
    if not len(coordinates):
        return
    along = move_all(objective, name) if subsample.is_elementwise else move_one(objective, name, coordinates)
    analytic, bar = (
        np.asarray(values[name], np.float64).ravel()[coordinates] for values in (gradient.parts, gradient.bounds)
    )
    of_values = objective.rounding(elementwise=subsample.is_elementwise)
    estimate = partial(slopes, along, unit=rounding.eps(target.widest), rounding=of_values)
    numeric = _estimate(estimate, _scale(x[coordinates]), analytic, bar)
    trouble = gradient.troubles[name] = _trouble(numeric)
    if not subsample.is_elementwise:
        wrong = (trouble == Trouble.NONE) & (np.abs(analytic - numeric.value) > DOUBT * numeric.error + bar)
        at_kink = _breaks_nearby(target, objective, name, coordinates, numeric.value) if wrong.any() else wrong
        trouble = gradient.troubles[name] = np.where(wrong & at_kink, Trouble.KINK, trouble)
    if (doubt := gradient.doubts.get(name)) is not None:
        trouble = np.where(doubt != Trouble.NONE, doubt, trouble)
    comparison, place = gradient.comparisons[name], subsample.index(name)
    comparison.add(
        analytic,
        numeric.value,
        add_tolerances(target, DOUBT * numeric.error + bar, numeric.value),
        trouble=trouble,
        conclusive=_is_conclusive(analytic, numeric, bar),
        x=x[coordinates],
        index=lambda i: place(int(coordinates[i])),
        calls=gradient.calls and gradient.calls(name),
    )
    comparison.evaluations += numeric.evaluations


def _breaks_nearby(target: Target, objective: Objective, name: str, coordinates: Array, at: Array) -> Array:
    """Tell where a number is equal to another, and the slope at a point nearby, where it is not, is clearly different.

    At a tie, the slope along one coordinate may exist and yet not be the only right gradient: that of a median is 0.
    """
    x, rng = np.asarray(objective.leaves[name], np.float64), target.rng("nearby")
    values, counts = np.unique(x, return_counts=True)
    is_tied = np.isin(x.ravel()[coordinates], values[counts > 1])
    breaks = np.zeros_like(is_tied)
    for _ in range(DRAWS if is_tied.any() else 0):
        moved = x + NEARBY * _scale(x) * rng.uniform(-1, 1, x.shape)
        near = move_one(replace(objective, leaves={**objective.leaves, name: moved}), name, coordinates)
        slope = slopes(near, _scale(x.ravel()[coordinates]) * NEARBY / 8, rounding.eps(target.widest)).value
        with np.errstate(invalid="ignore"):
            breaks |= is_tied & (np.abs(slope - at) > CLEARLY * (np.abs(slope) + np.abs(at)))
    return breaks


def _is_conclusive(analytic: Array, numeric: Slopes, bar: Array) -> Array:
    """Tell where agreement proves something: within the numeric bar alone, or within a hundredth of the numbers."""
    with np.errstate(invalid="ignore"):
        size = np.fmax(np.abs(analytic), np.abs(numeric.value))
        near = np.abs(analytic - numeric.value) <= DOUBT * numeric.error
        narrow = DOUBT * numeric.error + bar <= NO_DIGITS * size
    return (near | narrow) & (numeric.trouble != Trouble.NO_DIGITS)


def _trouble(numeric: Slopes) -> Array:
    """Return the trouble that makes a slope unusable; a slope with one digit left can still expose a large error."""
    with np.errstate(invalid="ignore"):
        has_one = DOUBT * numeric.error <= ONE_DIGIT * np.abs(numeric.value)
    return np.where((numeric.trouble == Trouble.NO_DIGITS) & has_one, Trouble.NONE, numeric.trouble)


def _estimate(estimate: Callable[[Array], Slopes], scale: Array, analytic: Array, bar: Array) -> Slopes:
    """Return the slopes; where a gradient looks wrong, estimate again with smaller steps.

    ``estimate(scale)`` returns the slopes whose largest steps are ``scale``. If the two estimates contradict each
    other, neither proves anything.
    """
    first = estimate(scale)
    with np.errstate(invalid="ignore"):
        right = np.abs(analytic - first.value) <= DOUBT * first.error + bar
    doubtful = (_trouble(first) == Trouble.NONE) & ~right
    if not doubtful.any():
        return first
    nearer = estimate(scale * NEARER)
    with np.errstate(invalid="ignore"):
        apart = np.abs(nearer.value - first.value) > DOUBT * (nearer.error + first.error)
    trouble = np.where(doubtful & apart, Trouble.CONTRADICTION, first.trouble)
    trouble = np.where(doubtful & (_trouble(nearer) != Trouble.NONE), nearer.trouble, trouble)
    return Slopes(first.value, first.error, trouble, first.evaluations + nearer.evaluations)


def _compare_directions(target: Target, gradient: Gradient, objective: Objective) -> None:
    """Compare along random directions in each leaf, which cover the coordinates that are not checked one by one."""
    rng = np.random.default_rng([target.options.seed, 1])
    for name, part in gradient.parts.items():
        x = np.asarray(objective.leaves[name], np.float64)
        if not x.size:
            continue
        count = 1 if x.size > LARGE else DIRECTIONS
        signs = rng.uniform(0.25, 1, (count, *x.shape)) * rng.choice([-1.0, 1.0], (count, *x.shape))
        d = signs * _scale(x)
        axes = tuple(range(1, d.ndim))
        analytic, bar = (d * part).sum(axis=axes), (np.abs(d) * gradient.bounds[name]).sum(axis=axes)
        along, unit = move_along(objective, name, d), rounding.eps(target.widest)
        estimate = partial(slopes, along, unit=unit, rounding=objective.rounding(elementwise=False))
        numeric = _estimate(estimate, np.ones(count), analytic, bar)
        allowed = add_tolerances(target, DOUBT * numeric.error + bar, numeric.value)
        comparison, conclusive = gradient.comparisons[name], _is_conclusive(analytic, numeric, bar)
        calls, trouble = gradient.calls and along_directions(gradient.calls(name), d), _trouble(numeric)
        comparison.add(
            analytic, numeric.value, allowed, trouble=trouble, conclusive=conclusive, index=nowhere, calls=calls
        )
        comparison.evaluations += numeric.evaluations


def _coordinates(target: Target, subsample: Sample, size: int) -> Array:
    """Return the coordinates to move one by one: all, or a random choice where all would be too much work."""
    rows = target.options.work // max(1, numbers_of(subsample.point), subsample.point.cost)
    most = min(COORDINATES if target.has_example else COORDINATES_OF_TRIED, max(1, rows // (2 * RUNGS + 1)))
    if subsample.is_elementwise or size <= most:
        return np.arange(size)
    return np.sort(np.random.default_rng(target.options.seed).choice(size, most, replace=False))


def _scale(x: Array) -> Array:
    """Return the first step of each number: a power of two, so that all steps are exact."""
    size = np.where((x == 0) | ~np.isfinite(x), 1.0, np.abs(x))
    return 2.0 ** np.floor(np.log2(REACH * size))
