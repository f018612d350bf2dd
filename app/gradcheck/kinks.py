"""Compare a gradient, of either order, at special points: 0, ties, kinks, the ends of the domain.

A function may have a kink there, and every subgradient is right: a gradient is right along a direction if it lies
between the derivatives on both sides and nearby. The sides may differ from output to output. Directions that keep equal
numbers equal show more: the maximum of two equal numbers has a derivative along (1, 1), and a gradient that gives
all of dy to both is wrong.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from app.autodiff.point import Arrays
from app.errors import OpFailed, Unprocessable
from app.gradcheck import rounding
from app.gradcheck.objective import Objective
from app.gradcheck.reproduce import Call, calls
from app.gradcheck.sample import Sample
from app.gradcheck.target import Target
from ops import Array
from pullback.gradcheck.number_comparison import Comparison
from pullback.gradcheck.numeric import COVERAGE, Status
from pullback.gradcheck.reproduction import Index

# The most numbers of an input that are moved alone, and how many directions move all inputs together.
ALONE, TOGETHER = 12, 2
# The steps in each direction, as fractions of the first.
STEPS = np.array([1.0, 0.5, 0.25, 0.125])
# How many points nearby show the derivatives where ties are broken, how far they are, in first steps, and by which
# fraction such a derivative must differ from the others to count.
NEARBY_POINTS, NEARBY_DISTANCE, OTHER_SLOPE = 12, 16.0, 0.01
# How large a step is where a number is near 0, as a fraction of the domain.
NEAR_ZERO = 2.0**-6
# The relative error above which a one-sided derivative proves nothing.
MAX_RELATIVE_ERROR = 0.05


@dataclass(frozen=True)
class Direction:
    """A direction by input, and what it moves: one number of one input, or all inputs together.

    For an elementwise op, a number stands for each number of the input: they all move at once. ``size`` is how far a
    single number moves.
    """

    moves: Arrays
    alone: str | None = None
    position: int = 0
    size: Array | float = 1.0


def compare_one_sided(
    target: Target,
    sample: Sample,
    objective: Objective,
    comparisons: Mapping[str | None, Comparison],
    *,
    kind: Literal["gradients", "products"] = "gradients",
) -> None:
    """Compare gradients with the derivatives of an objective on both sides of a sample, along several directions.

    ``kind`` is that of the values which are the gradients of this objective. ``comparisons`` has one for each input,
    and one for the directions that move all inputs, under ``None``.
    """
    directions = _directions(target, sample)
    try:
        low, high, error = _one_sided_derivatives(target, sample, objective, [each.moves for each in directions])
    except (OpFailed, Unprocessable):
        # The op raises beside the point, as at the end of its domain.
        return
    gradients = {name: np.asarray(dx, np.float64) for name, dx in sample.of_kind(kind).items()}
    bounds = sample.error_bounds(kind, target.widest)
    for k, direction in enumerate(directions):
        d, size = direction.moves, direction.size
        analytic = sample.total({name: dx * d[name] for name, dx in gradients.items()}) / size
        bar = sample.total({name: bound * np.abs(d[name]) for name, bound in bounds.items()}) / size
        middle, half = (low[k] + high[k]) / 2 / size, (high[k] - low[k]) / 2 / size
        numeric_bar = COVERAGE * error[k] / size
        usable = numeric_bar <= MAX_RELATIVE_ERROR * np.fmax(np.abs(analytic), np.abs(middle) + half) + bar
        status = np.where(usable, Status.OK, Status.NO_DIGITS)
        status = np.where(np.isfinite(analytic) & np.isfinite(middle), status, Status.NOT_FINITE)
        allowed = half + numeric_bar + bar
        where = _where(sample, direction, kind) | {"error": numeric_bar + bar, "scale": np.abs(middle) + half}
        comparisons[direction.alone].add(np.nan_to_num(analytic), middle, allowed, status=status, **where)


def _where(sample: Sample, direction: Direction, kind: Literal["gradients", "products"]) -> dict[str, Any]:
    """Return the fields of ``Comparison.add`` that say where the numbers along a direction are."""
    if (name := direction.alone) is None:
        some = calls(sample, (kind, next(iter(sample.vectors))), times=direction.moves)
        return {"index": sample.total_index, "calls": some}
    some, index = calls(sample, (kind, name)), sample.index(name)
    x, at = np.ravel(np.asarray(sample.point.inputs[name], np.float64)), direction.position
    if sample.is_elementwise:
        return {"index": index, "calls": some, "x": x}

    def index_of(i: int) -> Index:
        return index(at + i)

    def call_of(i: int) -> Call:
        return some(at + i)

    return {"index": index_of, "calls": call_of, "x": x[at]}


def _directions(target: Target, sample: Sample) -> list[Direction]:
    """Return directions that move one number alone, and some that move all inputs, equal numbers alike."""
    inputs = {name: np.asarray(x, np.float64) for name, x in sample.inputs.items()}
    slots = [slot for slot in target.op.inputs if slot.name in inputs]
    around_zero = min((high - low for low, high in (slot.domain for slot in slots) if low <= 0 <= high), default=0.0)
    sizes: dict[str, Array] = {}
    for name, x in inputs.items():
        # Powers of two: the sizes of the numbers, or of a part of the domain around 0 that they are in.
        size = np.maximum(np.abs(x), NEAR_ZERO * around_zero)
        sizes[name] = 2.0 ** np.floor(np.log2(np.where(size > 0, size, 1.0)))
    zeros, rng = {name: np.zeros_like(x) for name, x in inputs.items()}, target.rng("sides")
    found: list[Direction] = []
    for name, size in sizes.items():
        if sample.is_elementwise:
            found.append(Direction({**zeros, name: size}, name, size=size))
            continue
        for i in rng.permutation(size.size)[:ALONE]:
            unit = np.zeros(size.size)
            unit[i] = size.flat[i]
            found.append(Direction({**zeros, name: unit.reshape(size.shape)}, name, int(i), float(size.flat[i])))
    ones = {name: np.ones_like(x) for name, x in inputs.items()}
    together = [ones] if sample.is_elementwise else [_tied(inputs, rng) for _ in range(TOGETHER)]
    found += [Direction({name: size * d[name] for name, size in sizes.items()}) for d in together]
    return found


def _tied(inputs: Arrays, rng: np.random.Generator) -> dict[str, Array]:
    """Return a direction that is equal where the numbers are."""
    every = np.concatenate([x.ravel() for x in inputs.values()])
    distinct, indices = np.unique(every, return_inverse=True)
    of_value = rng.uniform(0.5, 1.5, distinct.shape) * rng.choice([-1.0, 1.0], distinct.shape)
    parts = np.split(of_value[indices.ravel()], np.cumsum([x.size for x in inputs.values()])[:-1])
    return {name: part.reshape(x.shape) for (name, x), part in zip(inputs.items(), parts, strict=True)}


def _one_sided_derivatives(
    target: Target, sample: Sample, objective: Objective, directions: Sequence[Arrays]
) -> tuple[Array, Array, Array]:
    """Return the least and the largest right derivative along each direction, and their error.

    Shapes: (K,) for K directions, and (K, *shape) for an elementwise op. Where one side is not finite, as outside a
    domain, the other one is the derivative.
    """
    first = 2.0 ** np.floor(np.log2(rounding.eps(objective.dtype)) / 4)
    moves = first * np.concatenate([[0.0], STEPS, -STEPS, [STEPS[-1], -STEPS[-1]] * NEARBY_POINTS])
    rows, rng = dict[str, Array](), target.rng("nearby")
    for name in sample.vectors:
        x = np.asarray(sample.point.inputs[name], np.float64)
        size = np.max([np.abs(d[name]) for d in directions], axis=0)
        nearby = x + NEARBY_DISTANCE * first * size * _strata(x.shape, rng)
        bases = np.stack([*[x] * (1 + 2 * len(STEPS)), *(each for each in nearby for _ in range(2))])
        column = moves.reshape(-1, *(1,) * x.ndim)
        rows[name] = np.concatenate([bases + column * d[name] for d in directions])
    values = objective.function(rows)
    size = len(directions), *(next(iter(sample.point.inputs.values())).shape if sample.is_elementwise else ())
    low, high, error = (np.zeros(size) for _ in range(3))
    with np.errstate(all="ignore"):
        for name, weight in objective.weights.items():
            weights = np.ravel(np.asarray(weight, np.float64))
            terms = np.asarray(values[name], np.float64).reshape(len(directions), len(moves), -1) * weights
            # The bounds are those of the op: the values of a surrogate may be larger, and round too.
            sizes = np.max(np.abs(terms), axis=1, where=np.isfinite(terms), initial=0.0)
            rounds = np.fmax(np.ravel(objective.bounds[name]) * np.abs(weights), rounding.eps(objective.dtype) * sizes)
            noise = rounds / (first * STEPS[-1])
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
    others = np.where(apart > OTHER_SLOPE * size, nearby, right[:, None])
    every = np.concatenate([sides, others], axis=1)
    return (
        np.fmin.reduce(every, axis=1),
        np.fmax.reduce(every, axis=1),
        (np.nan_to_num(its_error) + np.nan_to_num(other_error) + noise),
    )


def _strata(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Return ``NEARBY_POINTS`` arrays from -1 to 1; each element has one number in every part of this range.

    So among up to ``NEARBY_POINTS`` equal numbers, each is moved to every rank.
    """
    first = rng.permutation(math.prod(shape)).reshape(shape)
    part = (first + np.arange(NEARBY_POINTS).reshape(-1, *(1,) * len(shape))) % NEARBY_POINTS
    return 2 * (part + rng.uniform(size=part.shape)) / NEARBY_POINTS - 1


def _one_sided(middle: Array, beside: Array, first: float) -> tuple[Array, Array]:
    """Return the derivative on one side, extrapolated to step 0, and its error; ``beside`` has the steps in axis 1."""
    slopes = np.stack([(beside[:, i] - middle) / (first * step) for i, step in enumerate(STEPS)])
    extrapolated = 2 * slopes[1:] - slopes[:-1]
    return extrapolated[1], np.ptp(extrapolated, axis=0)
