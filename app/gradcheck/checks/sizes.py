"""Sizes: values and derivatives are right at one number, at 64 and 65, without axes, with three, and at those between.

An elementwise op gives the same numbers in every shape. At each size of any other op, a quick look compares the values
with the reference, and both orders along one direction; what looks wrong is then checked like other points.
"""

import math
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from app.autodiff.derivatives import values_of, values_up_to
from app.autodiff.point import Point
from app.autodiff.programs import Program
from app.errors import OpFailed, Unprocessable
from app.gradcheck import reshaped, rounding, sizes, sweep
from app.gradcheck.checks import contract, derivative, second, value
from app.gradcheck.claims import claim_of
from app.gradcheck.reference import has_reference, reference_at
from app.gradcheck.sample import Sample, sample_at
from app.gradcheck.sizes import Sized
from app.gradcheck.target import Target
from app.runtime import modes
from ops import Derivative, Op, OpFault
from pullback.gradcheck.verdict import Comparison, Finding, Place

NAME = "sizes"
WHAT = {0: "y", 1: "dx", 2: "the second order"}
CURE = "mend the op, or refuse the size in validate"
# The sizes that are checked with care at each order, and the numbers that one numeric derivative may evaluate there.
MAX_SUSPECTS, WORK = 6, 1 << 20
# The most that forward may take, as the least of several runs, for a longer axis.
MOST_S, RUNS = 2e-3, 3
# The first steps of the quick looks. Many numbers that move far pass many kinks; in a narrow dtype, a short way has no
# digits.
FIRST_STEPS, FIRST_STEPS_OF_NARROW = (2.0**-6, 2.0**-13), (2.0**-6,)
# Among so many numbers, those that are sorted or looked up pass a kink at every step but a tiny one: a slope across
# thousands of jumps looks smooth.
MANY, TINY_STEP = 512, 2.0**-26
# How far a number may be off in a quick look, relative to it and in roundings.
RELATIVE, ROUNDINGS = 1e-6, 64.0


@dataclass(frozen=True)
class _Look:
    """A sample of some sizes, and how wrong each order looks: above 1, it does; NaN where there is no number."""

    sizes: str
    sample: Sample
    ratios: dict[int, float]


def check(target: Target) -> Iterator[Finding]:
    """Check an op at drawn points of many sizes, at all orders."""
    place = Place(NAME, dtype=target.widest)
    if target.inputs is not None:
        yield Finding(place, "skipped", "the inputs are given, and so are their sizes")
        return
    if target.batching == "elementwise":
        yield from reshaped.findings(target, place)
        return
    looks, faults = list[_Look](), list[tuple[int, Finding]]()
    for sized in _points(target):
        target.checkpoint()
        found = _look(target, sized, place)
        if isinstance(found, Finding):
            faults.append((sized.point.size, found))
        elif found is not None:
            looks.append(found)
    if faults:
        # The smallest size that fails is the easiest to mend.
        yield min(faults, key=lambda fault: (fault[1].verdict != "fail", fault[0]))[1]
    elif not looks:
        yield Finding(place, "skipped", _why_none(target.op))
    for order in (0, *target.orders):
        if found := _finding(target, replace(place, order=order), looks):
            yield found


def _why_none(op: Op) -> str:
    if not any(isinstance(size, str) for slot in op.inputs for size in slot.shape):
        return "all sizes are fixed"
    if op.sample is not None:
        return "its own sample draws points of one size; let it draw several"
    return "it accepts no other sizes"


def _points(target: Target) -> Iterator[Sized]:
    yield from sizes.points(target)
    is_bounded = modes.is_known_bounded(_program(target.samples[-1]), "graph")
    for lengths in (*sizes.BLOCKS, *((length,) for length in sizes.LONG if is_bounded)):
        longest_s = 0.0
        for sized in sizes.long_points(target, lengths):
            yield sized
            longest_s = max(longest_s, _least_s(sized.point))
        # An op that forms a matrix takes the square of a long axis, or its cube.
        if longest_s > MOST_S:
            return


def _program(sample: Sample) -> Program:
    return values_up_to(sample.last, sample.point, sample.cotangents, sample.vectors).program


def _least_s(point: Point) -> float:
    times = list[float]()
    with suppress(OpFailed, Unprocessable):
        for _ in range(RUNS):
            began = time.perf_counter()
            _ = values_of(point).run()
            times.append(time.perf_counter() - began)
    return min(times, default=math.inf)


def _look(target: Target, sized: Sized, place: Place) -> _Look | Finding | None:
    """Look at a point. Return ``None`` if the op rejects it, and a finding if it breaks its contract there."""
    order, rng = 0, np.random.default_rng([target.options.seed, 2])
    try:
        _ = values_of(sized.point).run()
        sample = sample_at(sized.point, rng, target.magnitudes, last=target.last)
        if not has_reference(sized.point) or sample.is_singular:
            return None
        if failure := contract.failure(sample, 2 if target.last == "products" else 1):
            order, error = failure
            raise error
    except Unprocessable:
        return None
    except OpFailed as error:
        # A kernel that fails in forward refuses the size in its way; outputs of another shape are a fault.
        if not order and not isinstance(error.__cause__, OpFault):
            return None
        # Some kernels of TensorFlow's own gradients fail without numbers: nobody may ever ask for that.
        verdict = "fail" if not order or all(x.size for x in sized.point.inputs.values()) else "skipped"
        return Finding(replace(place, order=order), verdict, f"at {sized.sizes}: {error.located}; {CURE}", 1)
    return _Look(sized.sizes, sample, {order: _ratio(target, sample, order) for order in (0, *target.orders)})


def _ratio(target: Target, sample: Sample, order: int) -> float:
    """Return how wrong an order looks; NaN where there is nothing to compare."""
    outputs = sample.of_kind("outputs").values()
    if not all(np.isfinite(np.asarray(y, np.float64)).all() for y in outputs):
        return float("nan")
    if order == 0:
        return _ratio_to_reference(sample)
    kinds = ("gradients",) if order == 1 else ("products", "slots")
    found = [np.asarray(y, np.float64) for (kind, _), y in sample.values.items() if kind in kinds]
    if not any(y.size for y in found):
        return float("nan")
    if not all(np.isfinite(y).all() for y in found):
        return float("inf")
    rows = {key: y[None] for key, y in sample.values.items()}
    is_wide = rounding.eps(target.widest) <= rounding.eps("float64")
    steps = FIRST_STEPS if is_wide else FIRST_STEPS_OF_NARROW
    if is_wide and sample.point.size >= MANY:
        steps = (*steps, TINY_STEP)
    ratio = min(float(sweep.how_wrong(target, [sample], rows, order, first_step=step)[0]) for step in steps)
    return ratio if order == 1 else max(ratio, _ratio_of_slots(sample))


def _ratio_to_reference(sample: Sample) -> float:
    if sample.point.op.reference is None:
        return float("nan")
    ratio = 0.0
    expected = reference_at(sample.point, sample.point.inputs)
    with np.errstate(all="ignore"):
        for y, should in zip(sample.of_kind("outputs").values(), expected, strict=True):
            wide, unit = np.asarray(y, np.float64), _unit(sample)
            off = np.abs(wide - np.asarray(should, np.float64)) / (unit * np.abs(wide) + np.finfo(np.float64).tiny)
            ratio = max(ratio, float(np.nan_to_num(off, nan=np.inf).max(initial=0.0)))
    return ratio


def _ratio_of_slots(sample: Sample) -> float:
    """Return how far ⟨dy, the slot of dy⟩ is off ⟨vjp(dy), v⟩: they are equal if the gradient is linear in dy."""
    if not sample.claim.linear:
        return 0.0
    sums, size = list[float](), 0.0
    for kind, directions in (("slots", sample.cotangents), ("gradients", sample.vectors)):
        values = sample.of_kind(kind)
        terms = [np.asarray(values[name], np.float64) * d for name, d in directions.items()]
        sums.append(sum(float(each.sum()) for each in terms))
        size += sum(float(np.abs(each).sum()) for each in terms)
    return abs(sums[0] - sums[1]) / (_unit(sample) * size + np.finfo(np.float64).tiny)


def _unit(sample: Sample) -> float:
    return max(RELATIVE, ROUNDINGS * rounding.eps(sample.point.spec.dtype))


def _finding(target: Target, place: Place, looks: list[_Look]) -> Finding | None:
    """Return the finding on one order: what fails at a size, or at how many sizes it agrees."""
    order = place.order or 0
    known = [look for look in looks if not np.isnan(look.ratios[order])]
    doubtful = sorted((look for look in known if look.ratios[order] > 1), key=lambda look: -look.ratios[order])
    unknown = len(doubtful[MAX_SUSPECTS:])
    # The smallest size that fails is the easiest to reproduce.
    for look in sorted(doubtful[:MAX_SUSPECTS], key=lambda look: look.sample.point.size):
        target.checkpoint()
        findings = list(_compare(target, place, look.sample))
        for finding in findings:
            if finding.verdict == "fail":
                return replace(finding, sentence=f"at {look.sizes}: {finding.sentence}")
        unknown += all(finding.verdict != "pass" for finding in findings)
    if not known:
        return None
    agreeing, by_size = len(known) - unknown, sorted(known, key=lambda look: look.sample.point.size)
    sentence = f"{WHAT[order]} agrees at {agreeing} sizes, from {by_size[0].sizes} to {by_size[-1].sizes}"
    if unknown:
        sentence += f"; inconclusive at {unknown} (kinks, jumps or no digits)"
    verdict = "pass" if agreeing else "inconclusive"
    return Finding(place, verdict, sentence, len(known), inconclusive={"no derivative": unknown} if unknown else {})


def _compare(target: Target, place: Place, sample: Sample) -> Iterator[Finding]:
    """Compare with care at one point: few numbers one by one, and all of them along random directions."""
    few, tolerances = replace(target, options=replace(target.options, work=WORK)), target.options.tolerances
    if place.order == 0:
        comparison = Comparison(place, tolerances)
        value.compare_values(comparison, value.forward_alone(sample), value.of_bounds(sample))
        yield comparison.finding("y", "the reference")
        return
    inputs = {name: Comparison(replace(place, input=name), tolerances) for name in sample.vectors}
    if place.order == 1:
        for output in sample.cotangents:
            derivative.compare_output(few, sample, output, inputs)
        against = derivative.AGAINST[type(claim_of(sample, 1))]
        yield from (comparison.finding(f"d{name}", against) for name, comparison in inputs.items())
        return
    outputs = {name: Comparison(replace(place, output=name), tolerances) for name in sample.cotangents}
    second.compare_x_slots(few, sample, inputs)
    second.compare_dy_slots(few, sample, outputs)
    against = second.AGAINST[type(claim_of(sample, 2))]
    yield from (comparison.finding(f"d⟨vjp, v⟩/d{name}", against) for name, comparison in inputs.items())
    against = second.AGAINST[Derivative]
    yield from (comparison.finding(f"d⟨vjp, v⟩/dd{name}", against) for name, comparison in outputs.items())
