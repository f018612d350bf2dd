"""A quick look at one point, which finds what is worth a comparison with care.

It compares the values with the reference, and both orders along one direction.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from app.gradcheck import rounding, sweep
from app.gradcheck.checks import derivative, second, value
from app.gradcheck.claims import claim_of
from app.gradcheck.reference import reference_at
from app.gradcheck.sample import Sample
from app.gradcheck.target import Target
from ops import Array, Derivative
from pullback.gradcheck.number_comparison import Comparison
from pullback.gradcheck.verdict import Finding, Subject

# The numbers that one numeric derivative may evaluate in a comparison with care.
WORK = 1 << 20
# The first steps of the quick looks. Many numbers that move far pass many kinks; in a narrow dtype, a short way has no
# digits.
FIRST_STEPS, FIRST_STEPS_OF_NARROW = (2.0**-6, 2.0**-13), (2.0**-6,)
# Among so many numbers, those that are sorted or looked up pass a kink at every step but a tiny one: a slope across
# thousands of jumps looks smooth.
MANY, TINY_STEP = 512, 2.0**-26
# How far a number may be off in a quick look, relative to it and in roundings.
RELATIVE, ROUNDINGS = 1e-6, 64.0


def how_wrong(target: Target, sample: Sample, order: int) -> float:
    """Return how wrong an order looks: above 1, it does; NaN where there is nothing to compare."""
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
    ratio = _least_ratio(sweep.how_wrong(target, [sample], rows, order, first_step=step) for step in steps)
    return ratio if order == 1 else max(ratio, _ratio_of_slots(sample))


def _least_ratio(ratios: Iterable[Array]) -> float:
    """Return the largest of the ratios, each the least of several looks; take no more looks when none is above 1."""
    least = np.array(np.inf)
    for each in ratios:
        least = np.minimum(least, each)
        if not (least > 1).any():
            break
    return float(least.max(initial=0.0))


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


def compare(target: Target, subject: Subject, sample: Sample) -> Iterator[Finding]:
    """Compare with care at one point: few numbers one by one, and all of them along random directions."""
    few, tolerances = replace(target, options=replace(target.options, work=WORK)), target.options.tolerances
    if subject.order == 0:
        comparison = Comparison(subject, tolerances)
        value.compare_values(comparison, value.forward_alone(sample), sample)
        yield comparison.finding("y", "the reference")
        return
    inputs = {name: Comparison(replace(subject, input=name), tolerances) for name in sample.vectors}
    if subject.order == 1:
        for output in sample.cotangents:
            derivative.compare_output(few, sample, output, inputs)
        against = derivative.AGAINST[type(claim_of(sample, 1))]
        yield from (comparison.finding(f"d{name}", against) for name, comparison in inputs.items())
        return
    outputs = {name: Comparison(replace(subject, output=name), tolerances) for name in sample.cotangents}
    second.compare_x_slots(few, sample, inputs)
    second.compare_dy_slots(few, sample, outputs)
    against = second.AGAINST[type(claim_of(sample, 2))]
    yield from (comparison.finding(f"d⟨vjp, v⟩/d{name}", against) for name, comparison in inputs.items())
    against = second.AGAINST[Derivative]
    yield from (comparison.finding(f"d⟨vjp, v⟩/dd{name}", against) for name, comparison in outputs.items())
