"""Sweeps: a quick look at many points of an op, which finds those where the gradient looks wrong.

The checks move a few inputs at a few points with great care. A gradient that is wrong in a small part of the domain
would pass. A sweep compares one directional derivative at each of some two hundred points with a short extrapolation.
It proves nothing by itself: the points that look wrong are then checked with the same care as the others.

All numbers of an elementwise op's sample are checked one by one, unless it is large. Then the sweep looks at each.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from app.autodiff.point import Arrays, blame_op
from app.gradcheck import rounding
from app.gradcheck.claims import all_cotangents, all_vectors, named_slots, primals
from app.gradcheck.rows import Rows
from app.gradcheck.sample import Sample, Subsample
from app.gradcheck.target import NUMBERS_OF_LARGE, Target, stacked
from app.runtime.modes import Key
from ops import Array, Derivative, Formula, Surrogate

# The most points that are checked with care, and how many numbers of a large input are looked at in one go.
SUSPECTS, PIECE = 3, 1 << 16
# The first step: a fraction of each number, of the domain where the number is near 0, and of the way to its ends.
STEP, NEAR_ZERO = 2.0**-6, 2.0**-6
STEPS = (1.0, -1.0, 0.5, -0.5, 0.25, -0.25)
# An estimate may be off by DOUBT times its error, SLACK times the numbers and ROUNDINGS roundings of the values.
DOUBT, SLACK, ROUNDINGS = 16.0, 1e-6, 64.0


def suspects(target: Target, order: int) -> list[Sample]:
    """Return samples at the points of a sweep where the derivative of this order looks wrong, the worst first."""
    if target.many and target.many_values:
        wrong = _sweep(target, target.many, target.many_values, order)
        return [replace(target.many[int(i)], sizes=target.sizes) for i in _worst(wrong, SUSPECTS)]
    found: list[Sample] = []
    for subsample in target.subsamples:
        if isinstance(subsample, Subsample):
            worst = _worst(_sweep_large(target, subsample.whole, order), NUMBERS_OF_LARGE)
            places = np.setdiff1d(worst, subsample.indices)
            # One number where derivatives are infinite by nature must not excuse the others.
            places = [i for i in places if not Subsample.of(subsample.whole, np.array([i])).is_singular]
            found += [Subsample.of(subsample.whole, np.array(places))] if places else []
    return found


def _sweep_large(target: Target, whole: Sample, order: int) -> Array:
    """Return the result of ``_sweep`` at all numbers of a large sample, computed in pieces that fit into a cache."""
    size = max(x.size for x in whole.point.inputs.values())
    wrong: list[Array] = []
    for start in range(0, size, PIECE):
        piece = Subsample.of(whole, np.arange(start, min(start + PIECE, size)))
        values = {key: value[None] for key, value in piece.values.items()}
        wrong.append(_sweep(target, [piece], values, order))
    return np.concatenate(wrong)


def _worst(wrong: Array, most: int) -> Array:
    """Return where a derivative looks wrong, the worst first."""
    places = np.flatnonzero(wrong > 1)
    return places[np.argsort(-wrong[places])[:most]]


def _sweep(target: Target, samples: Sequence[Sample], values: Mapping[Key, Array], order: int) -> Array:
    """Return how wrong the derivative looks in each row, or at each number of an elementwise op: above 1, it does."""
    inputs, dys, vectors = stacked(samples)
    rows, part = Rows(samples[0].point, target.checkpoint), "gradients" if order == 1 else "products"
    steps = {name: _step(target, name, inputs[name]) * v for name, v in vectors.items()}
    weights = dys if order == 1 else vectors

    def moved(t: float) -> dict[str, Array]:
        return {name: (inputs[name] + t * step).astype(inputs[name].dtype) for name, step in steps.items()}

    claim = samples[0].claim.first if order == 1 else samples[0].claim.second
    with blame_op(target.op, "claim"), np.errstate(all="ignore"):
        analytic = _dot(samples[0], {name: values[part, name] for name in steps}, steps)
        match claim:
            case Formula():
                return _apart(analytic, _dot(samples[0], _formula(samples, claim, order), steps))
            case Surrogate():
                found, unit = [_surrogate(samples, claim, order, moved(t)) for t in STEPS], 0.0
            case Derivative():
                found = [rows.forward(moved(t)) if order == 1 else rows.vjp(moved(t), dys) for t in STEPS]
                unit = rounding.eps(target.widest)
        return _off(analytic, [_dot(samples[0], each, weights) for each in found], unit)


def _step(target: Target, name: str, x: Array) -> Array:
    """Return the size of the first step of each number: it stays within the domain."""
    (slot,) = (slot for slot in target.op.inputs if slot.name == name)
    low, high = slot.domain
    wide = np.asarray(x, np.float64)
    size = np.maximum(np.abs(wide), NEAR_ZERO * (high - low))
    inside = np.minimum(wide - low, high - wide)
    # The numbers of a direction are at most 2.
    return STEP / 2 * np.where(inside > 0, np.minimum(size, inside), size)


def _surrogate(samples: Sequence[Sample], claim: Surrogate, order: int, moved: Arrays) -> Arrays:
    """Return the outputs of the surrogate, or of the second one, in each row."""
    rows: list[Arrays] = []
    for i, sample in enumerate(samples):
        xs, at = primals(sample, {name: x[i] for name, x in moved.items()}), primals(sample, {})
        if order == 1:
            rows.append(dict(zip((slot.name for slot in sample.point.op.outputs), claim.of(xs, at), strict=True)))
        else:
            rows.append(named_slots(sample, claim.of(xs, all_cotangents(sample, sample.cotangents), at)))
    return _stack(rows)


def _formula(samples: Sequence[Sample], claim: Formula, order: int) -> Arrays:
    """Return the results of the formula in each row."""
    rows: list[Arrays] = []
    for sample in samples:
        dys = all_cotangents(sample, sample.cotangents)
        results = claim.vjp(primals(sample, {}), dys, *([] if order == 1 else [all_vectors(sample)]))
        slots = named_slots(sample, results)
        rows.append(
            {name: np.broadcast_to(slots.get(name, np.zeros(())), v.shape) for name, v in sample.vectors.items()}
        )
    return _stack(rows)


def _stack(rows: Sequence[Arrays]) -> dict[str, Array]:
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def _dot(sample: Sample, values: Arrays, weights: Arrays) -> Array:
    """Return the sum of the products in each row, or at each number of an elementwise op; missing slots count as 0."""
    first = next(iter(weights.values()))
    count = first.size if sample.is_elementwise else len(first)
    terms = [
        (np.asarray(values[name], np.float64) * w).reshape(count, -1).sum(axis=1)
        for name, w in weights.items()
        if name in values
    ]
    return np.sum([np.zeros(count), *terms], axis=0)


def _off(analytic: Array, values: Sequence[Array], unit: float) -> Array:
    """Return how far a derivative is from Richardson's estimate, in units of what the estimate may be off."""
    one, half, quarter = ((values[i] - values[i + 1]) / (STEPS[i] - STEPS[i + 1]) for i in (0, 2, 4))
    first, second = (4 * half - one) / 3, (4 * quarter - half) / 3
    estimate = (16 * second - first) / 15
    size = np.max(np.abs(values), axis=0)
    return _apart(analytic, estimate, DOUBT * np.abs(estimate - second) + ROUNDINGS * unit * size)


def _apart(one: Array, other: Array, error: Array | float = 0.0) -> Array:
    """Return the distance of two numbers in units of what is allowed, 0 where it is not a number."""
    allowed = error + SLACK * (np.abs(one) + np.abs(other)) + np.finfo(np.float64).tiny
    return np.nan_to_num(np.abs(one - other) / allowed, nan=0.0, posinf=0.0)
