"""Finiteness: no NaN and no infinity in a gradient where the value is finite, at the extremes of each dtype.

The inputs of an elementwise op are 0, ±tiny, ±eps, ±1, ±√max/2 and ±max/4. Other ops multiply them, so theirs end at
±⁴√max, in one entry and in all entries at once. Declared poles, points that the op calls singular, and points where the
claim itself is not finite are excluded. A derivative that is not finite is wrong if the widest dtype, the claim or the
numeric derivative shows that it should be finite, within the domain that the input declares.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from app.autodiff.point import blame_op
from app.errors import OpFailed, Unprocessable
from app.gradcheck import rounding
from app.gradcheck.checks import derivative, second
from app.gradcheck.claims import all_cotangents, all_vectors, named_slots, primals
from app.gradcheck.comparison import slope_at
from app.gradcheck.numeric import Trouble
from app.gradcheck.objective import Objective
from app.gradcheck.reproduce import Call
from app.gradcheck.sample import Sample, sample_at
from app.gradcheck.target import Target
from app.gradcheck.verdict import NEAR_OVERFLOW, Element, Finding, Place
from app.runtime.modes import Key
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
    place, points, wrong, unproven = Place(NAME, order, dtype=dtype), 0, 0, 0
    worst: tuple[Element, str, str, Sample, int] | None = None
    for sample in samples:
        target.checkpoint()
        expected = _expected_finite(sample, order)
        for (what, name), value in sample.values.items():
            if what not in WHAT[order]:
                continue
            bad = ~np.isfinite(np.asarray(value, np.float64)) & expected
            points += int(np.broadcast_to(expected, value.shape).sum())
            if not bad.any():
                continue
            at = int(np.argmax(np.ravel(bad)))
            if not _is_wrong(target, sample, order, (what, name), at):
                unproven += int(bad.sum())
                continue
            wrong += int(bad.sum())
            if worst is None:
                worst = _element(sample, name, value, at, dtype), str(what), name, sample, at
    if worst is None:
        return _passed(place, points, unproven)
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


def _passed(place: Place, points: int, unproven: int) -> Finding:
    if not points:
        return Finding(place, "skipped", "nothing to check")
    sentence = f"finite at all {points} extreme points where the value is finite"
    if unproven:
        sentence = (
            f"finite at {points - unproven} of {points} extreme points where the value is finite; at the others, "
        )
        sentence += "the derivative overflows or cannot be determined, or the point is outside of the domain"
    return Finding(place, "pass", sentence, points)


def _is_wrong(target: Target, sample: Sample, order: int, key: Key, at: int) -> bool:
    """Tell whether a derivative that is not finite is proven to be finite.

    The widest dtype proves it, or the formula of the claim, which is finite there, or the numeric derivative; at a
    kink, the derivatives on both sides are finite.
    """
    if not all(_is_inside(slot, sample.point.inputs[slot.name]) for slot in sample.point.op.inputs):
        return False
    high = rounding.largest(sample.point.spec.dtype)
    if sample.point.spec.dtype != target.widest:
        true = float(np.ravel(target.widen(sample).values[key])[at])
        return bool(np.isfinite(true)) and abs(true) <= high
    claim = sample.claim.first if order == 1 else sample.claim.second
    if isinstance(claim, Formula) and key[0] != "slots":
        return True
    try:
        slope = slope_at(target, sample, _objective(target, sample, key), str(key[1]), at)
    except (OpFailed, Unprocessable):
        return False
    is_known = slope.trouble[0] in (Trouble.NONE, Trouble.KINK)
    return bool(is_known and np.isfinite(slope.value[0]) and abs(slope.value[0]) < NEAR_OVERFLOW * high)


def _objective(target: Target, sample: Sample, key: Key) -> Objective:
    """Return the function whose derivative the value ``key`` of a sample is."""
    match key[0]:
        case "gradients":
            return derivative.objective(target, sample, sample.cotangents)
        case "products":
            return second.x_objective(target, sample)
        case _:
            return second.dy_objective(target, sample)


def _is_inside(slot: Input, x: Array) -> bool:
    """Tell whether all numbers of an input are in its domain, if it declares one."""
    low, high = slot.domain
    return not slot.has_domain or bool(((x >= low) & (x <= high)).all())


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
    xs, dys, vectors = primals(sample, {}), all_cotangents(sample, sample.cotangents), all_vectors(sample)
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
            except (OpFailed, Unprocessable):
                # The op rejects the point, or raises there.
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
