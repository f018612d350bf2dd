"""Compare a gradient, of either order, at special points: 0, ties, kinks, the ends of the domain.

A function may have a kink there, and every subgradient is right: a gradient is right along a direction if it lies
between the derivatives on both sides and nearby. The sides may differ from output to output. Directions that keep equal
numbers equal show more: the maximum of two equal numbers has a derivative along (1, 1), and a gradient that gives
all of dy to both is wrong.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from app.autodiff.point import Arrays
from app.errors import OpFailed, Unprocessable
from app.gradcheck.objective import Objective
from app.gradcheck.one_sided import MAX_RELATIVE_ERROR, OneSided, one_sided_derivatives
from app.gradcheck.reproduce import Call, calls
from app.gradcheck.sample import Sample
from app.gradcheck.target import Target
from ops import Array
from pullback.gradcheck.number_comparison import Comparison
from pullback.gradcheck.numeric import Status
from pullback.gradcheck.reproduction import Index

# The most numbers of an input that are moved alone, and how many directions move all inputs together.
ALONE, TOGETHER = 12, 2
# How large a step is where a number is near 0, as a fraction of the domain.
NEAR_ZERO = 2.0**-6


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
    gradients = {name: np.asarray(dx, np.float64) for name, dx in sample.of_kind(kind).items()}
    bounds = sample.error_bounds(kind, target.widest)
    analytic = np.stack(
        [sample.total({name: dx * d.moves[name] for name, dx in gradients.items()}) for d in directions]
    )
    bars = np.stack([sample.total({x: bound * np.abs(d.moves[x]) for x, bound in bounds.items()}) for d in directions])
    try:
        moves = [each.moves for each in directions]
        slopes = one_sided_derivatives(target, sample, objective, moves, (analytic, bars))
    except (OpFailed, Unprocessable):
        # The op raises beside the point, other than beyond the end of its domain.
        return
    for k, direction in enumerate(directions):
        of, size = OneSided(*(part[k] / direction.size for part in slopes)), direction.size
        usable = of.is_usable(analytic[k] / size, bars[k] / size)
        why = np.where(of.apart > MAX_RELATIVE_ERROR * of.largest, Status.CONTRADICTION, Status.NO_DIGITS)
        status = np.where(usable, Status.OK, why)
        status = np.where(np.isfinite(analytic[k]) & np.isfinite(of.middle), status, Status.NOT_FINITE)
        bar = of.bar + bars[k] / size
        where: dict[str, Any] = _where(sample, direction, kind) | {"error": bar, "scale": of.largest}
        found = np.nan_to_num(analytic[k] / size)
        comparisons[direction.alone].add(found, of.middle, (of.high - of.low) / 2 + bar, status=status, **where)


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
