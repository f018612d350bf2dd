"""Compare a gradient with its claim: the numeric derivative of a function, or a formula."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypedDict

import numpy as np

from app.autodiff.point import Arrays
from app.errors import OpFailed, Unprocessable
from app.gradcheck import rounding
from app.gradcheck.balance import Balanced
from app.gradcheck.claims import formula_values
from app.gradcheck.objective import LARGE, Function, Objective, move_all, move_along, move_one
from app.gradcheck.points import room, sides, size_of_numbers
from app.gradcheck.reproduce import Calls
from app.gradcheck.rows import numbers_of
from app.gradcheck.sample import Sample, nowhere
from app.gradcheck.target import Target
from ops import Array, Op
from pullback.gradcheck.number_comparison import Comparison
from pullback.gradcheck.numeric import COVERAGE, MAX_STEPS, Slopes, Status, slopes
from pullback.gradcheck.reproduction import Index
from pullback.gradcheck.slope_comparison import add_slopes, estimate_twice, usable_status


class Limits(TypedDict):
    """The relative error and the least number of the values of an op: arguments of ``slopes``."""

    unit: float
    least: float


class Nearest(TypedDict):
    """The bound of the noise that values do not show, and the number of steps: arguments of ``slopes``."""

    rounding: float
    count: int


# The most coordinates that are moved one by one, one row each; and the most at other attributes than those of examples,
# or where a row runs a loop and takes long: the random directions cover all. Elementwise ops have no such limit.
COORDINATES, FEW_COORDINATES = 32, 8
# The steps of a first estimate in float64 for an op in a narrower dtype.
FEW_STEPS = 14
DIRECTIONS = 3
# How the nearest estimates know noise, and in how many steps: at smaller ones, numbers of a narrow dtype do not move.
NEAREST: Nearest = {"rounding": 0.0, "count": 8}
# The first step, as a fraction of the number that it moves.
FIRST_STEP = 0.25
# The least share of the numbers with terms that must stand still if the gradient in them is 0.
ENOUGH_STILL = 0.25
# How far points nearby are, as a fraction of the first step, how many, and how much another slope differs, relatively.
NEARBY_DISTANCE, NEARBY_POINTS, OTHER_SLOPE = 2.0**-8, 16, 0.05


@dataclass(frozen=True)
class Gradient:
    """A gradient under test: by leaf, its parts, their rounding bounds and the comparisons that collect the results."""

    parts: Arrays
    bounds: Arrays
    comparisons: Mapping[str, Comparison]
    statuses: dict[str, Array] = field(default_factory=dict[str, Array])
    """Set by ``compare``: the status of the numeric derivative at each coordinate that it checked."""
    known_statuses: Arrays = field(default_factory=dict[str, Array])
    """Statuses known beforehand that make a comparison meaningless, by coordinate."""
    by_coordinate: bool = True
    """Whether to move coordinates one by one when each takes a separate row."""
    calls: Callable[[str], Calls] | None = None
    """The calls that reproduce each part."""
    scales: Arrays = field(default_factory=dict[str, Array])
    """How large the terms of each number are, if that is known."""
    moved: float | None = None
    """How large the terms of what is differentiated are, if that is known."""
    terms: Arrays = field(default_factory=dict[str, Array])
    """Those of them that a leaf has, number by number, if what is differentiated has them."""

    def at_rest(self, scales: Array, step: Array | float, value: Array, terms: Array | None) -> Array:
        """Return the scales; a gradient without terms is 0, and as exact as what it is of stands still in a step.

        Numbers that nothing depends on prove nothing, unless many of those with ``terms`` stand still, too; without
        terms, all.
        """
        is_still = (scales == 0) & (value == 0)
        counts = is_still if terms is None else is_still[terms != 0]
        least = 1.0 if terms is None else ENOUGH_STILL
        if self.moved is None or not counts.size or np.mean(counts) < least:
            return scales
        return np.asarray(np.where(is_still, self.moved / step, scales), np.float64)


def compare(target: Target, subsample: Sample, gradient: Gradient, objective: Objective) -> None:
    """Compare a gradient with the numeric derivative of an objective, by coordinates and along random directions.

    The coordinates are those of the subsample.
    """
    for name in gradient.parts if gradient.by_coordinate or subsample.is_elementwise else ():
        _compare_coordinates(target, subsample, name, gradient, objective)
    if not subsample.is_elementwise:
        _compare_directions(target, subsample, gradient, objective)


def compare_with_formula(sample: Sample, gradient: Gradient, formula: Function) -> None:
    """Compare a gradient with a formula, whose values round in float64."""
    inputs = {name: np.asarray(sample.point.inputs[name], np.float64) for name in gradient.parts}
    expected, bounds = formula_values(formula, inputs, elementwise=sample.is_elementwise)
    for name, part in gradient.parts.items():
        bound = gradient.bounds[name] + bounds[name]
        calls, scale = gradient.calls and gradient.calls(name), gradient.scales.get(name)
        comparison, index = gradient.comparisons[name], sample.index(name)
        comparison.add(part, expected[name], bound, scale=scale, x=inputs[name], index=index, calls=calls)


def slope_at(target: Target, sample: Sample, objective: Objective, name: str, at: int) -> Slopes:
    """Return the derivative of an objective with respect to the number at flat position ``at`` of a leaf.

    It is estimated twice, as one that looks wrong is.
    """
    x, chosen = np.ravel(np.asarray(objective.leaves[name], np.float64)), np.array([at])
    error = objective.rounding(elementwise=sample.is_elementwise)
    estimate = partial(slopes, rounding=error, **limits(objective.dtype))
    moved = move_all(objective, name) if sample.is_elementwise else move_one(objective, name, chosen)
    some = x if sample.is_elementwise else x[chosen]
    step, inward, unknown = first_step(target.op, name, some), sides(target.op, name, some), np.full(some.shape, np.nan)
    found = estimate_inside(partial(estimate, moved), inward, step, unknown, np.zeros(some.shape))
    if not sample.is_elementwise:
        return found
    return Slopes(found.value[chosen], found.error[chosen], found.status[chosen], found.evaluations)


def _compare_coordinates(
    target: Target, subsample: Sample, name: str, gradient: Gradient, objective: Objective
) -> None:
    """Compare at all coordinates, or at a random choice where all would be too much work."""
    x = np.asarray(objective.leaves[name], np.float64).ravel()
    rows = target.options.work // max(1, numbers_of(subsample.point), subsample.point.cost)
    coordinates, most = np.arange(x.size), COORDINATES
    if not subsample.is_elementwise and x.size > FEW_COORDINATES and (not target.has_example or subsample.has_loop):
        most = FEW_COORDINATES
    most = min(most, max(1, rows // (2 * MAX_STEPS + 1)))
    if not subsample.is_elementwise and x.size > most:
        coordinates = np.sort(np.random.default_rng(target.options.seed).choice(x.size, most, replace=False))
    if not len(coordinates):
        return
    functions = move_all(objective, name) if subsample.is_elementwise else move_one(objective, name, coordinates)
    analytic, bar = (
        np.asarray(values[name], np.float64).ravel()[coordinates] for values in (gradient.parts, gradient.bounds)
    )
    error = objective.rounding(elementwise=subsample.is_elementwise)
    estimate = partial(slopes, functions, rounding=error, **limits(objective.dtype))
    cheaper = None if subsample.is_elementwise else _with_few_steps(estimate, objective, target)
    step, inward = first_step(target.op, name, x[coordinates]), sides(target.op, name, x[coordinates])
    numeric = estimate_inside(estimate, inward, step, analytic, bar, cheaper=cheaper)
    status = gradient.statuses[name] = _status(numeric, analytic, step, target)
    if subsample.is_elementwise:
        # No other number hides that a function is constant.
        is_still = (status == Status.NO_DIGITS) & (analytic == 0) & (numeric.value == 0)
        status = gradient.statuses[name] = np.where(is_still, Status.OK, status)
        numeric = replace(numeric, status=np.where(is_still, Status.OK, numeric.status))
    else:
        wrong = (status == Status.OK) & (np.abs(analytic - numeric.value) > COVERAGE * numeric.error + bar)
        at_kink = _breaks_nearby(target, objective, name, coordinates, numeric.value) if wrong.any() else wrong
        status = gradient.statuses[name] = np.where(wrong & at_kink, Status.KINK, status)
    if (known := gradient.known_statuses.get(name)) is not None:
        status = np.where(known != Status.OK, known, status)
    index, calls = subsample.index(name), gradient.calls and gradient.calls(name)

    def index_of(i: int) -> Index:
        return index(int(coordinates[i]))

    scale = np.ravel(gradient.scales[name])[coordinates] if name in gradient.scales else None
    if scale is not None:
        terms = np.ravel(gradient.terms[name])[coordinates] if name in gradient.terms else None
        scale = gradient.at_rest(scale, step, numeric.value, terms)
    where = {
        **{"x": x[coordinates], "index": index_of, "calls": calls},
        "scale": scale,
        "indices": ()
        if subsample.is_elementwise
        else [(np.shape(objective.leaves[name]), index(int(i))) for i in coordinates],
        "are_needed": isinstance(subsample, Balanced),
    }
    add_slopes(gradient.comparisons[name], analytic, numeric, bar, status=status, **where)


def _compare_directions(target: Target, subsample: Sample, gradient: Gradient, objective: Objective) -> None:
    """Compare along random directions in each leaf, which cover the coordinates that are not checked one by one.

    Where all are, and a row takes long, one direction is enough.
    """
    rng = np.random.default_rng([target.options.seed, 1])
    for name, part in gradient.parts.items():
        x = np.asarray(objective.leaves[name], np.float64)
        if not x.size:
            continue
        is_covered = gradient.by_coordinate and x.size <= FEW_COORDINATES and subsample.has_loop
        count = 1 if x.size > LARGE or is_covered else DIRECTIONS
        signs = rng.uniform(0.25, 1, (count, *x.shape)) * rng.choice([-1.0, 1.0], (count, *x.shape))
        inward = sides(target.op, name, x)
        d = np.where(inward, inward * np.abs(signs), signs) * first_step(target.op, name, x)
        axes = tuple(range(1, d.ndim))
        analytic, bar = (d * part).sum(axis=axes), (np.abs(d) * gradient.bounds[name]).sum(axis=axes)
        functions, error = move_along(objective, name, d), objective.rounding(elementwise=False)
        estimate = partial(slopes, functions, rounding=error, **limits(objective.dtype))
        cheaper = _with_few_steps(estimate, objective, target)
        is_at_end = np.full(count, float(inward.any()))
        numeric = estimate_inside(estimate, is_at_end, np.ones(count), analytic, bar, cheaper=cheaper)
        calls = gradient.calls and _along(gradient.calls(name), name, d)
        scale = (np.abs(d) * gradient.scales[name]).sum(axis=axes) if name in gradient.scales else None
        if scale is not None:
            scale = gradient.at_rest(scale, 1.0, numeric.value, np.ones(count) if gradient.terms else None)
        where = {"index": nowhere, "calls": calls, "scale": scale}
        status = _status(numeric, analytic, np.ones(count), target)
        add_slopes(gradient.comparisons[name], analytic, numeric, bar, status=status, **where)


def _status(numeric: Slopes, analytic: Array, step: Array, target: Target) -> Array:
    """Return the statuses; what a derivative that is not 0 moves a function by over a step may underflow."""
    with np.errstate(invalid="ignore", under="ignore"):
        moves = np.abs(analytic) * step
        is_lost = (moves <= rounding.underflow(target.widest)) & (np.abs(numeric.value) <= COVERAGE * numeric.error)
    return np.where(is_lost & (analytic != 0), Status.UNDERFLOW, usable_status(numeric))


def _along(calls: Calls, name: str, directions: Array) -> Calls:
    return lambda i: replace(calls(i), times={name: directions[i]})


def _breaks_nearby(target: Target, objective: Objective, name: str, coordinates: Array, at: Array) -> Array:
    """Return where a number equals another one, and the slope at a point nearby without this tie clearly differs.

    At a tie, the slope along one coordinate may exist and yet not be the only right gradient: that of a median is 0.
    """
    x, rng = np.asarray(objective.leaves[name], np.float64), target.rng("nearby")
    values = np.sort(x, axis=None)
    is_tied = np.isin(x.ravel()[coordinates], values[1:][values[1:] == values[:-1]])
    breaks = np.zeros_like(is_tied)
    for _ in range(NEARBY_POINTS if is_tied.any() else 0):
        signs, inward = rng.uniform(-1, 1, x.shape), sides(target.op, name, x)
        signs = np.where(inward, inward * (1 + np.abs(signs)) / 2, signs)
        moved = x + NEARBY_DISTANCE * first_step(target.op, name, x) * signs
        nearby = move_one(replace(objective, leaves={**objective.leaves, name: moved}), name, coordinates)
        scale = first_step(target.op, name, x.ravel()[coordinates]) * NEARBY_DISTANCE / 8
        slope = slopes(nearby, scale, **limits(objective.dtype)).value
        with np.errstate(invalid="ignore"):
            breaks |= is_tied & (np.abs(slope - at) > OTHER_SLOPE * (np.abs(slope) + np.abs(at)))
    return breaks


def _with_few_steps(
    estimate: Callable[..., Slopes], objective: Objective, target: Target
) -> Callable[[Array], Slopes] | None:
    """Return an estimate that finds the digits of the op's dtype, ``None`` where that takes all steps."""
    is_precise = rounding.eps(objective.dtype) < rounding.eps(target.widest)
    return partial(estimate, count=FEW_STEPS) if is_precise else None


def limits(dtype: str) -> Limits:
    """Return the limits of values that an op computes in a dtype."""
    return {"unit": rounding.eps(dtype), "least": rounding.underflow(dtype)}


def first_step(op: Op, name: str, x: Array) -> Array:
    """Return the first step of each number of a leaf: a power of two, so that all steps are exact.

    All steps stay in the domain; those of a number at its end do on its side.
    """
    size = FIRST_STEP * np.where((x == 0) | ~np.isfinite(x), size_of_numbers(op, name), np.abs(x))
    inside = np.where(sides(op, name, x) == 0, room(op, name, x), FIRST_STEP * size_of_numbers(op, name))
    return 2.0 ** np.floor(np.log2(np.where(inside > 0, np.minimum(size, inside), size)))


def estimate_inside(
    estimate: Callable[..., Slopes],
    sides: Array,
    scale: Array,
    analytic: Array,
    bar: Array,
    *,
    cheaper: Callable[[Array], Slopes] | None = None,
) -> Slopes:
    """Return what ``estimate_twice`` does; if the op rejects numbers beyond its domain, from the ``sides`` within.

    Raises ``OpFailed`` or ``Unprocessable`` if it rejects others.
    """
    try:
        return estimate_twice(estimate, scale, analytic, bar, cheaper, nearest=partial(estimate, **NEAREST))
    except (OpFailed, Unprocessable):
        if not sides.any():
            raise
        one_sided = partial(estimate, sides=sides)
        return estimate_twice(one_sided, scale, analytic, bar, nearest=partial(one_sided, **NEAREST))
