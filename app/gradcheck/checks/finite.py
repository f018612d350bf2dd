"""Finiteness: no NaN and no infinity in a gradient where the value is finite, at the extremes of each dtype.

The inputs of an elementwise op are 0, ±tiny, ±eps, ±1, ±√max/2 and ±max/4. Other ops multiply them, so theirs end at
±⁴√max, in one entry and in all entries at once. Declared poles, points that the op calls singular, and points where the
claim itself is not finite are excluded.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from app.autodiff.point import blame_op
from app.errors import Unprocessable
from app.gradcheck import rounding
from app.gradcheck.claims import all_cotangents, named_slots, wide_primals
from app.gradcheck.reproduce import Call
from app.gradcheck.sample import Sample, sample_at
from app.gradcheck.target import Target
from app.gradcheck.verdict import Element, Finding, Place
from app.tensors.dtypes import DTYPES
from ops import Array, Derivative, Formula, Input, Surrogate

NAME = "finite"
WHAT = {1: ("gradients",), 2: ("products", "slots")}
# Derivatives nearer to a pole than this, as a fraction of its size, need not be finite.
NEAR = 1e-3


def check(target: Target) -> Iterator[Finding]:
    """Check each order in every dtype."""
    for dtype in target.dtypes:
        samples = list(_samples(target, dtype))
        for order in target.options.orders:
            yield _finding(target, samples, order, dtype)


def _finding(target: Target, samples: list[Sample], order: int, dtype: str) -> Finding:
    place, points, wrong = Place(NAME, order, dtype=dtype), 0, 0
    worst: tuple[Element, str, str, Sample, int] | None = None
    for sample in samples:
        target.checkpoint()
        expected = _expected_finite(sample, order)
        for (what, name), value in sample.values.items():
            if what not in WHAT[order]:
                continue
            bad = ~np.isfinite(np.asarray(value, np.float64)) & expected
            points, wrong = points + int(np.broadcast_to(expected, value.shape).sum()), wrong + int(bad.sum())
            if worst is None and bad.any():
                at = int(np.argmax(np.ravel(bad)))
                worst = _element(sample, name, value, at, dtype), str(what), name, sample, at
    if worst is None:
        sentence = f"finite at all {points} extreme points where the value is finite" if points else "nothing to check"
        return Finding(place, "pass" if points else "skipped", sentence, points)
    element, what, name, sample, at = worst
    place = replace(place, output=name) if what == "slots" else replace(place, input=name)
    call = Call(sample.point, (what, name), sample.cotangents, sample.vectors, position=at)
    return Finding(
        place,
        "fail",
        _sentence(element, what, name, wrong, points),
        points,
        worst=element,
        reproduction=call.reproduction(element.index, element.analytic),
    )


def _sentence(worst: Element, what: str, name: str, wrong: int, points: int) -> str:
    thing = {"gradients": f"d{name}", "products": f"d⟨vjp, v⟩/d{name}", "slots": f"d⟨vjp, v⟩/dd{name}"}[what]
    at = "" if worst.x is None else f" at {name} = {worst.x:.6g}"
    cure = "if the derivative is infinite by nature, declare the pole (Input.poles or Op.singular)"
    return (
        f"{thing} is {worst.analytic:g}{at}, where the value is finite; {wrong} of {points} numbers not finite; {cure}"
    )


def _element(sample: Sample, name: str, value: Array, at: int, dtype: str) -> Element:
    x = float(np.ravel(sample.point.inputs[name])[at]) if name in sample.point.inputs else None
    analytic = float(np.ravel(value)[at])
    return Element(sample.index(name)(at), x, analytic, float("nan"), float("inf"), dtype)


def _expected_finite(sample: Sample, order: int) -> Array:
    """Tell where a derivative must be finite: number by number for an elementwise op, else for the sample."""
    with np.errstate(all="ignore"):
        finite = [np.isfinite(np.asarray(y, np.float64)) for (what, _), y in sample.values.items() if what == "outputs"]
        finite += [np.isfinite(np.asarray(value, np.float64)) for value in _claim_values(sample, order)]
        away = [_is_away_from_poles(slot, sample.point.inputs[slot.name]) for slot in sample.point.op.inputs]
    if sample.is_elementwise:
        return np.logical_and.reduce([*finite, *away])
    return np.asarray(all(bool(part.all()) for part in (*finite, *away)) and not sample.is_singular)


def _claim_values(sample: Sample, order: int) -> list[Array]:
    """Return the values that are finite where the claim is: of the formula, or of the surrogate itself."""
    xs = wide_primals(sample)
    dys, vectors = (
        all_cotangents(sample, sample.cotangents),
        [sample.vectors.get(n, np.zeros(())) for n in sample.point.inputs],
    )
    claims = (sample.claim.first, sample.claim.second)[:order]
    values: list[Array] = []
    with blame_op(sample.point.op, "claim"), np.errstate(all="ignore"):
        for claim, more in zip(claims, ((), (dys,)), strict=False):
            match claim:
                case Derivative():
                    pass
                case Surrogate(of=of):
                    results = of(xs, *more, xs)
                    values += list(named_slots(sample, results).values()) if more else [np.asarray(y) for y in results]
                case Formula(vjp=formula):
                    slots = formula(xs, dys, *([vectors] if more else []))
                    values += list(named_slots(sample, slots).values())
        if sample.is_elementwise:
            values = [np.broadcast_to(value, xs[0].shape) for value in values]
    return values


def _is_away_from_poles(slot: Input, x: Array) -> Array:
    wide = np.asarray(x, np.float64)
    far = [np.abs(wide - pole) > NEAR * max(1.0, abs(pole)) for pole in slot.poles]
    return np.logical_and.reduce([np.ones(wide.shape, bool), *far])


def _extremes(dtype: str, *, elementwise: bool) -> Array:
    row = DTYPES[dtype]
    most = float(np.finfo(np.float64).max) if np.isinf(row.high) else row.high
    huge = [most**0.5 / 2, most / 4] if elementwise else [most**0.25]
    sizes = np.array([0.0, rounding.tiny(dtype), rounding.eps(dtype), 1.0, *huge])
    return np.concatenate([sizes, -sizes]).astype(row.numpy)


def _samples(target: Target, dtype: str) -> Iterator[Sample]:
    """Yield samples with extreme numbers in each differentiable input in turn, if the op accepts them."""
    base = target.in_dtype(target.samples[-1], dtype)
    if base is None:
        return
    for name in base.vectors:
        for inputs in _extreme_inputs(target, base.point.inputs, name, dtype):
            try:
                sample = sample_at(target.bind(inputs, dtype), np.random.default_rng(target.options.seed))
                _ = sample.values
            except Unprocessable:
                continue
            yield sample


def _one_of_each_kind(inputs: Mapping[str, Array]) -> Mapping[str, Array]:
    """Return one number of each input of an elementwise op; if some inputs are bools, twice, with both bools.

    A number that a mask hides from the value may still enter the gradient, as 0·∞.
    """
    if not any(x.dtype == np.bool_ for x in inputs.values()):
        return {name: np.ravel(x)[:1] for name, x in inputs.items()}
    both = np.array([False, True])
    return {name: both if x.dtype == np.bool_ else np.repeat(np.ravel(x)[:1], 2) for name, x in inputs.items()}


def _extreme_inputs(
    target: Target, inputs: Mapping[str, Array], name: str, dtype: str
) -> Iterator[Mapping[str, Array]]:
    elementwise = target.op.batching == "elementwise"
    extremes = _extremes(dtype, elementwise=elementwise)
    if elementwise:
        some = _one_of_each_kind(inputs)
        for value in extremes:
            yield {**some, name: np.full_like(some[name], value)}
        return
    for value in extremes:
        x = inputs[name]
        yield {**inputs, name: np.full_like(x, value)}
        one = x.copy()
        one.reshape(-1)[:1] = value
        yield {**inputs, name: one}
