"""Compare a gradient at special places: 0, ties, kinks, the ends of the domain.

A function may have a kink there, and every subgradient is right: a gradient is right along a direction if it lies
between the derivatives on both sides and nearby. Each output may choose a side of its own. Directions along which equal
numbers stay equal show more: the maximum of two equal numbers has a derivative along (1, 1), and a gradient that gives
all of dy to both is wrong.
"""

from collections.abc import Mapping

import numpy as np

from app.autodiff.point import Arrays
from app.errors import OpFailed, Unprocessable
from app.gradcheck import rounding
from app.gradcheck.comparison import Objective, add_tolerances
from app.gradcheck.numeric import DOUBT, Trouble
from app.gradcheck.sample import Sample, nowhere
from app.gradcheck.target import Target
from app.gradcheck.verdict import Comparison
from ops import Array

# The most numbers of an input that are moved alone, and how many directions move all inputs together.
ALONE, TOGETHER = 12, 2
# The steps in each direction, as fractions of the first.
STEPS = np.array([1.0, 0.5, 0.25, 0.125])
# How many points nearby show the derivatives where ties are broken, how far they are, in first steps, and by which
# fraction such a derivative must differ from the others to count.
NEARBY, FAR, APART = 12, 16.0, 0.01
# How large a step is where a number is near 0, as a fraction of the domain.
NEAR_ZERO = 2.0**-6
# The relative error above which a one-sided derivative proves nothing.
NO_DIGITS = 0.05


def compare_between_sides(
    target: Target, sample: Sample, gradients: Arrays, objective: Objective, comparison: Comparison
) -> None:
    """Compare gradients with the one-sided derivatives of an objective along directions from the sample."""
    directions = _scaled(target, sample, _directions(target, sample))
    try:
        low, high, error = _sides(target, sample, objective, directions)
    except (OpFailed, Unprocessable):
        # The op raises beside the point, as at the end of its domain.
        return
    axes = 0 if sample.is_elementwise else None
    bounds = {name: sample.error_bound(("gradients", name), target.widest) for name in gradients}
    analytic, bar = (
        np.stack([np.sum([values[name] * f(d[name]) for name in d], axis=axes) for d in directions])
        if sample.is_elementwise
        else np.array([sum(float(np.sum(values[name] * f(d[name]))) for name in d) for d in directions])
        for values, f in ((gradients, np.asarray), (bounds, np.abs))
    )
    middle, allowed = (low + high) / 2, (high - low) / 2 + DOUBT * error + bar
    with np.errstate(invalid="ignore"):
        usable = DOUBT * error <= NO_DIGITS * np.maximum(np.abs(low), np.abs(high)) + bar
        trouble = np.where(np.isfinite(analytic) & np.isfinite(middle), Trouble.NONE, Trouble.NOT_FINITE)
    trouble = np.where((trouble == Trouble.NONE) & ~usable, Trouble.NO_DIGITS, trouble)
    comparison.add(
        np.nan_to_num(analytic), middle, add_tolerances(target, allowed, middle), trouble=trouble, index=nowhere
    )


def _directions(target: Target, sample: Sample) -> list[dict[str, Array]]:
    """Return directions that move one number alone, and some that move all numbers, equal ones alike.

    For an elementwise op, a number is one place of one input, and all places move at once.
    """
    inputs = {name: np.asarray(sample.point.inputs[name], np.float64) for name in sample.vectors}
    zeros, rng = {name: np.zeros_like(x) for name, x in inputs.items()}, target.rng("sides")
    found: list[dict[str, Array]] = []
    for name, x in inputs.items():
        if sample.is_elementwise:
            found.append({**zeros, name: np.ones_like(x)})
            continue
        for i in rng.permutation(x.size)[:ALONE]:
            unit = np.zeros(x.size)
            unit[i] = 1
            found.append({**zeros, name: unit.reshape(x.shape)})
    if sample.is_elementwise:
        return [*found, {name: np.ones_like(x) for name, x in inputs.items()}]
    return [*found, *(_alike(inputs, rng) for _ in range(TOGETHER))]


def _scaled(target: Target, sample: Sample, directions: list[dict[str, Array]]) -> list[dict[str, Array]]:
    """Return directions whose numbers are as large as those that they move, or as a part of the domain around 0."""
    slots = [slot for slot in target.op.inputs if slot.name in sample.vectors]
    around_zero = min((high - low for low, high in (slot.domain for slot in slots) if low <= 0 <= high), default=0.0)
    sizes: dict[str, Array] = {}
    for name in sample.vectors:
        size = np.maximum(np.abs(np.asarray(sample.point.inputs[name], np.float64)), NEAR_ZERO * around_zero)
        sizes[name] = 2.0 ** np.floor(np.log2(np.where(size > 0, size, 1.0)))
    return [{name: size * d[name] for name, size in sizes.items()} for d in directions]


def _alike(inputs: Mapping[str, Array], rng: np.random.Generator) -> dict[str, Array]:
    """Return a direction that is equal where the numbers are."""
    every = np.concatenate([x.ravel() for x in inputs.values()])
    distinct, places = np.unique(every, return_inverse=True)
    of_value = rng.uniform(0.5, 1.5, distinct.shape) * rng.choice([-1.0, 1.0], distinct.shape)
    parts = np.split(of_value[places.ravel()], np.cumsum([x.size for x in inputs.values()])[:-1])
    return {name: part.reshape(x.shape) for (name, x), part in zip(inputs.items(), parts, strict=True)}


def _sides(
    target: Target, sample: Sample, objective: Objective, directions: list[dict[str, Array]]
) -> tuple[Array, Array, Array]:
    """Return the least and the largest right derivative along each direction, and their error.

    Shapes: (K,) for K directions, and (K, *shape) for an elementwise op. Where one side is not finite, as outside a
    domain, the other one is the derivative.
    """
    unit = rounding.eps(target.widest)
    first = 2.0 ** np.floor(np.log2(unit) / 4)
    moves, rng = np.concatenate([[0.0], STEPS, -STEPS, np.tile([STEPS[-1], -STEPS[-1]], NEARBY)]), target.rng("nearby")
    bases: dict[str, Array] = {}
    for name in sample.vectors:
        x = np.asarray(sample.point.inputs[name], np.float64)
        size = np.max([np.abs(d[name]) for d in directions], axis=0)
        away = FAR * first * size * rng.uniform(-1, 1, (NEARBY, *x.shape))
        bases[name] = np.concatenate([np.repeat(x[None], 1 + 2 * len(STEPS), axis=0), np.repeat(x + away, 2, axis=0)])
    rows = {
        name: np.concatenate([base + _column(first * moves, d[name]) * d[name] for d in directions])
        for name, base in bases.items()
    }
    values = objective.function({name: x.astype(sample.point.inputs[name].dtype) for name, x in rows.items()})
    size = len(directions), *(next(iter(sample.point.inputs.values())).shape if sample.is_elementwise else ())
    low, high, error = (np.zeros(size) for _ in range(3))
    with np.errstate(all="ignore"):
        for name, weight in objective.weights.items():
            weights = np.ravel(np.asarray(weight, np.float64))
            terms = np.asarray(values[name], np.float64).reshape(len(directions), len(moves), -1) * weights
            noise = np.ravel(objective.bounds[name]) * np.abs(weights) / (first * STEPS[-1])
            for total, part in zip((low, high, error), _hull(terms, first, noise), strict=True):
                np.add(total, np.reshape(part, size) if sample.is_elementwise else np.sum(part, axis=-1), out=total)
    return low, high, error


def _hull(terms: Array, first: float, noise: Array) -> tuple[Array, Array, Array]:
    """Return the least and the largest right derivative of each term, and the error; ``terms`` has the moves in axis 1.

    Besides the two one-sided derivatives, those at points nearby count, if they are clearly others: there the ties are
    broken. Clarke's subdifferential is the hull of the limits of such derivatives.
    """
    count = len(STEPS)
    right, its_error = _one_sided(terms[:, 0], terms[:, 1 : count + 1], first)
    left, other_error = _one_sided(terms[:, 0], terms[:, count + 1 : 2 * count + 1], -first)
    right, left = np.where(np.isfinite(right), right, left), np.where(np.isfinite(left), left, right)
    nearby = (terms[:, 2 * count + 1 :: 2] - terms[:, 2 * count + 2 :: 2]) / (2 * first * STEPS[-1])
    sides = np.stack([right, left], axis=1)
    size = np.fmax(np.abs(nearby), np.abs(sides).max(axis=1, keepdims=True))
    apart = np.abs(nearby[:, :, None] - sides[:, None]).min(axis=2)
    others = np.where(apart > APART * size, nearby, right[:, None])
    every = np.concatenate([sides, others], axis=1)
    return (
        np.fmin.reduce(every, axis=1),
        np.fmax.reduce(every, axis=1),
        (np.nan_to_num(its_error) + np.nan_to_num(other_error) + noise),
    )


def _column(steps: Array, x: Array) -> Array:
    return steps.reshape(-1, *(1,) * x.ndim)


def _one_sided(middle: Array, beside: Array, first: float) -> tuple[Array, Array]:
    """Return the derivative on one side, extrapolated to step 0, and its error; ``beside`` has the steps in axis 1."""
    slopes = np.stack([(beside[:, i] - middle) / (first * step) for i, step in enumerate(STEPS)])
    extrapolated = 2 * slopes[1:] - slopes[:-1]
    return extrapolated[1], np.ptp(extrapolated, axis=0)
