"""Sweeps: a quick look at many points of an op, which finds those where the gradient looks wrong.

The checks move a few inputs at a few points with great care. A gradient that is wrong in a small part of the domain
would pass. A sweep compares one directional derivative at each of some two hundred points with a short extrapolation.
It proves nothing by itself: the points that look wrong are then checked with the same care as the others.

All numbers of an elementwise op's sample are checked one by one, unless it is large. Then the sweep looks at each.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from app.autodiff.point import Arrays
from app.gradcheck import rounding
from app.gradcheck.claims import claim_function, claim_of
from app.gradcheck.points import edges, sides
from app.gradcheck.rows import Rows, stack
from app.gradcheck.sample import Sample, stacked
from app.gradcheck.subsample import Subsample
from app.gradcheck.target import NUMBERS_OF_LARGE, Target
from app.runtime.modes import Key
from ops import Array, Formula, Surrogate

# The most points that are checked with care, and how many numbers of a large input are swept at once, which fit into a
# cache.
MAX_SUSPECTS, PIECE = 3, 1 << 16
# The first step: a fraction of each number, of the domain where the number is near 0, and of the way to its ends.
FIRST_STEP, NEAR_ZERO = 2.0**-6, 2.0**-6
# The steps, as fractions of the first.
STEPS = (1.0, -1.0, 0.5, -0.5, 0.25, -0.25)
# An estimate may be off by ERRORS times its error, RELATIVE times the numbers and ROUNDINGS roundings of the values.
ERRORS, RELATIVE, ROUNDINGS = 16.0, 1e-6, 64.0


def suspects(target: Target, order: int) -> list[Sample]:
    """Return samples at the points of a sweep where the derivative of this order looks wrong, the worst first.

    Near kinks, poles and ends of the domain, all numbers of an elementwise op are among them.
    """
    found: list[Sample] = []
    if target.batching == "elementwise":
        found += target.near_samples
    else:
        looks = ((target.sweep_samples, target.sweep_values), (target.near_samples, target.near_values))
        for samples, values in looks:
            ratios = how_wrong(target, samples, values, order) if values else np.zeros(0)
            worst = (samples[int(i)] for i in _worst(ratios, MAX_SUSPECTS))
            found += [replace(sample, magnitudes=target.magnitudes) for sample in worst]
    for subsample in target.subsamples:
        if isinstance(subsample, Subsample):
            whole, ratios = subsample.whole, list[Array]()
            size = max(x.size for x in whole.point.inputs.values())
            for start in range(0, size, PIECE):
                piece = Subsample.of(whole, np.arange(start, min(start + PIECE, size)))
                values = {key: value[None] for key, value in piece.values.items()}
                ratios.append(how_wrong(target, [piece], values, order))
            unknown = np.setdiff1d(_worst(np.concatenate(ratios), NUMBERS_OF_LARGE), subsample.indices)
            # One number where derivatives are infinite by nature must not excuse the others.
            indices = [i for i in unknown if not Subsample.of(whole, np.array([i])).is_singular]
            found += [Subsample.of(whole, np.array(indices))] if indices else []
    return found


def _worst(ratios: Array, most: int) -> Array:
    """Return where a derivative looks wrong, the worst first."""
    wrong = np.flatnonzero(ratios > 1)
    return wrong[np.argsort(-ratios[wrong])[:most]]


def how_wrong(
    target: Target,
    samples: Sequence[Sample],
    values: Mapping[Key, Array],
    order: int,
    *,
    first_step: float = FIRST_STEP,
) -> Array:
    """Return how wrong the derivative looks in each row, or at each number of an elementwise op: above 1, it does.

    ``values`` are those of the samples, rows first; ``first_step`` is a fraction of each number.
    """
    first, (inputs, dys, vectors) = samples[0], stacked(samples)
    rows, part = Rows(first.point, target.checkpoint), "gradients" if order == 1 else "products"
    steps = {name: first_step * _room(target, name, inputs[name]) * v for name, v in vectors.items()}
    claim, unit = claim_of(first, order), 0.0
    with np.errstate(all="ignore"):
        analytic = _dot(first, {name: values[part, name] for name in steps}, steps)
        if isinstance(claim, Formula):
            formula = stack([claim_function(sample, order)({}) for sample in samples])
            return _ratio(analytic, _dot(first, formula, steps))
        moved = [
            {name: (inputs[name] + t * step).astype(inputs[name].dtype) for name, step in steps.items()} for t in STEPS
        ]
        if isinstance(claim, Surrogate):
            surrogates = [claim_function(sample, order) for sample in samples]
            found = [
                stack([of({name: x[i] for name, x in xs.items()}) for i, of in enumerate(surrogates)]) for xs in moved
            ]
        else:
            unit = max(rounding.eps(dtype) for dtype in (target.widest, first.inner_dtype))
            every = _joined([{**inputs, **xs} for xs in moved])
            of_all = rows.forward(every) if order == 1 else rows.vjp(every, _joined([dys] * len(moved)))
            parts = {name: np.split(y, len(moved)) for name, y in of_all.items()}
            found = [{name: part[i] for name, part in parts.items()} for i in range(len(moved))]
        return _off(analytic, [_dot(first, each, dys if order == 1 else vectors) for each in found], unit)


def _joined(parts: Sequence[Arrays]) -> Arrays:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _room(target: Target, name: str, x: Array) -> Array:
    """Return how far each number may move along a direction: not beyond an end of the domain, a kink or a pole."""
    (slot,) = (slot for slot in target.op.inputs if slot.name == name)
    low, high = slot.domain
    wide = np.asarray(x, np.float64)
    size = np.maximum(np.abs(wide), NEAR_ZERO * (high - low))
    for edge in {low, high, *edges(slot)}:
        way = np.abs(wide - edge)
        size = np.where(way > 0, np.minimum(size, way), size)
    # A number at an end of its domain stays there.
    size = np.where(sides(target.op, name, wide) == 0, size, 0.0)
    # The numbers of a direction are at most 2.
    return size / 2


def _dot(sample: Sample, values: Arrays, weights: Arrays) -> Array:
    """Return the sum of the products in each row, or at each number of an elementwise op."""
    count = next(iter(weights.values())).size if sample.is_elementwise else len(next(iter(weights.values())))
    terms = [(np.asarray(values[name], np.float64) * w).reshape(count, -1).sum(axis=1) for name, w in weights.items()]
    return np.sum(terms, axis=0)


def _off(analytic: Array, values: Sequence[Array], unit: float) -> Array:
    """Return the distance of a derivative from Richardson's estimate, relative to the error of the estimate."""
    one, half, quarter = ((values[i] - values[i + 1]) / (STEPS[i] - STEPS[i + 1]) for i in (0, 2, 4))
    first, second = (4 * half - one) / 3, (4 * quarter - half) / 3
    estimate = (16 * second - first) / 15
    size = np.max(np.abs(values), axis=0)
    return _ratio(analytic, estimate, ERRORS * np.abs(estimate - second) + ROUNDINGS * unit * size)


def _ratio(one: Array, other: Array, error: Array | float = 0.0) -> Array:
    """Return the distance of two numbers relative to what is allowed, 0 where it is not a number."""
    allowed = error + RELATIVE * (np.abs(one) + np.abs(other)) + np.finfo(np.float64).tiny
    return np.nan_to_num(np.abs(one - other) / allowed, nan=0.0, posinf=0.0)
