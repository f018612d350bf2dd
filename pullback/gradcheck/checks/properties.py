"""What holds for every derivative, whatever its values.

It repeats itself, does not depend on what else is asked for, and is linear, adjoint and symmetric.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations_with_replacement

import numpy as np

from pullback.dtypes import Array
from pullback.gradcheck import floats
from pullback.gradcheck.calls import GradientCall
from pullback.gradcheck.meter import Meter
from pullback.gradcheck.number_comparison import Comparison, Tolerances
from pullback.gradcheck.sample import (
    NOISES,
    RATIO,
    Sample,
    directions,
    gradients,
    largest_of,
    rounding,
    vectors,
)
from pullback.gradcheck.scales import balance
from pullback.gradcheck.verdict import Finding, Subject


def determinism(meter: Meter, samples: Sequence[Sample], subject: Subject, tolerances: Tolerances) -> Iterator[Finding]:
    """Evaluate again: the same bits, or a difference that the tolerance of a solver explains."""
    comparison, largest = Comparison(subject, tolerances), 0.0
    for sample in samples:
        values, found = meter.values(sample.point), gradients(meter, sample.point, sample.cotangents, sample.inputs)
        for name, y in values.items():
            allowed = _allowed(meter, sample, sample.values[name])
            comparison.add(y, sample.values[name], allowed, key=("outputs", name))
            largest = max(largest, _difference(y, sample.values[name]))
        for (output, name), dx in found.items():
            before = sample.gradients[output, name]
            allowed = _allowed(meter, sample, before)
            comparison.add(dx, before, allowed, key=("gradients", name))
            largest = max(largest, _difference(dx, before))
    finding = comparison.finding("the second evaluation", "the first")
    if finding.verdict == "pass" and largest:
        note = f"; not bit for bit: numbers differ by up to {largest:.1g} of the largest, as the noise of a solver does"
        finding = replace(finding, sentence=finding.sentence + note)
    if finding.verdict == "fail" and meter.function.changed is not None:
        note = "; if it draws random numbers or keeps state, give it a seed, or call .eval() of a module with dropout"
        finding = replace(finding, sentence=finding.sentence + note)
    yield finding


def subset(meter: Meter, samples: Sequence[Sample], subject: Subject, tolerances: Tolerances) -> Iterator[Finding]:
    """Ask for the gradient in each input alone: the same as in all, or a difference that a tolerance explains."""
    for slot in samples[0].inputs:
        comparison = Comparison(replace(subject, input=slot.name), tolerances)
        for sample in samples:
            for pair, dx in gradients(meter, sample.point, sample.cotangents, [slot]).items():
                allowed = _allowed(meter, sample, sample.gradients[pair])
                comparison.add(dx, sample.gradients[pair], allowed, key=("gradients", slot.name))
        yield comparison.finding(f"d{slot.name}, asked for alone,", f"d{slot.name} of a request for all inputs")


def _allowed(meter: Meter, sample: Sample, numbers: Array) -> Array:
    """Return how far numbers may be off when they are computed again: by a solver's tolerance, or by rounding."""
    eps = max(floats.eps(slot.dtype) for slot in (*sample.inputs, *sample.outputs))
    return np.array(max(meter.function.tolerance, rounding(eps)) * largest_of(numbers))


def _difference(one: Array, other: Array) -> float:
    """Return the largest difference, relative to the largest number."""
    with np.errstate(invalid="ignore"):
        size, apart = np.nanmax(np.abs(other), initial=0.0), np.nanmax(np.abs(one - other), initial=0.0)
    return float(apart / size) if size > 0 and np.isfinite(apart / size) else 0.0


def linearity(meter: Meter, samples: Sequence[Sample], subject: Subject, tolerances: Tolerances) -> Iterator[Finding]:
    """Compare vjp(2a + 3b) with 2 vjp(a) + 3 vjp(b)."""
    comparisons = {
        pair: Comparison(replace(subject, output=pair[0], input=pair[1]), tolerances) for pair in samples[0].gradients
    }
    rng = np.random.default_rng(len(samples))
    for sample in samples:
        other = {slot.name: directions(slot, np.ones(slot.shape), rng) for slot in sample.outputs}
        both = {name: 2 * dy + 3 * other[name] for name, dy in sample.cotangents.items()}
        two, together = (gradients(meter, sample.point, dys, sample.inputs) for dys in (other, both))
        for pair, comparison in comparisons.items():
            call = GradientCall(meter, sample, pair, both[pair[0]])
            expected = 2 * sample.gradients[pair] + 3 * two[pair]
            terms = np.abs(2 * sample.gradients[pair]) + np.abs(3 * two[pair])
            bar = RATIO * sample.bars[pair] + rounding(sample.unit) * terms
            comparison.add(together[pair], expected, bar, scale=sample.terms(pair), calls=_always(call))
    for (_, name), comparison in comparisons.items():
        yield comparison.finding(f"vjp(2a + 3b) in {name}", "2 vjp(a) + 3 vjp(b)")


def _always(call: GradientCall) -> Callable[[int], GradientCall]:
    return lambda _: call


def adjoint(meter: Meter, samples: Sequence[Sample], subject: Subject, tolerances: Tolerances) -> Iterator[Finding]:
    """Compare ⟨dy, jvp(v)⟩ with ⟨vjp(dy), v⟩."""
    comparisons = {
        pair: Comparison(replace(subject, output=pair[0], input=pair[1]), tolerances) for pair in samples[0].gradients
    }
    rng = np.random.default_rng(len(samples))
    for sample in samples:
        for slot in sample.inputs:
            v = balance(vectors(slot, rng), sample.size_in(slot.name))
            pushed = meter.jvp(sample.point, slot.name, v, list(sample.cotangents))
            for output, dy in sample.cotangents.items():
                pair = (output, slot.name)
                forth, back = dy * pushed[output], sample.gradients[pair] * v
                bar = np.sum(sample.bars[pair] * np.abs(v))
                bar += sample.relative_bar(pair) * np.abs(pushed[output]).max(initial=0.0) * np.sum(np.abs(dy))
                scale = np.max(np.abs(v) * sample.terms(pair), initial=0.0)
                comparisons[pair].add(forth.sum()[None], back.sum()[None], bar, scale=scale, index=_nowhere)
    for comparison in comparisons.values():
        yield comparison.finding("⟨dy, jvp(v)⟩", "⟨vjp(dy), v⟩")


def _nowhere(_: int) -> None:
    return None


def symmetry(meter: Meter, samples: Sequence[Sample], subject: Subject, tolerances: Tolerances) -> Iterator[Finding]:
    """Compare ⟨u, H v⟩ with ⟨v, H u⟩. How far H(3v) is from 3 H v shows the noise of a Hessian's action."""
    comparison, rng = Comparison(replace(subject, order=2), tolerances), np.random.default_rng(len(samples))
    for sample in samples:
        for slot in sample.outputs:
            for one, other in combinations_with_replacement(sample.inputs, 2):
                sizes = (sample.sizes[slot.name, each.name] ** 0.5 for each in (one, other))
                u, v = (balance(vectors(each, rng), size) for each, size in zip((one, other), sizes, strict=True))
                action = partial(meter.hessian, sample.point, slot.name)
                (forth, back), noise = _actions(action, (one.name, other.name), sample.cotangents[slot.name], u, v)
                size = np.sum(np.abs(u * forth)) + np.sum(np.abs(v * back))
                relative = max(sample.relative_bar((slot.name, each.name)) for each in (one, other))
                bar = NOISES * noise + RATIO * relative * size
                comparison.add(np.sum(u * forth)[None], np.sum(v * back)[None], bar, index=_nowhere)
    yield comparison.finding("⟨u, H v⟩", "⟨v, H u⟩")


def _actions(
    action: Callable[[tuple[str, str], Array, Array], Array], pair: tuple[str, str], dy: Array, u: Array, v: Array
) -> tuple[tuple[Array, Array], float]:
    """Return H v and H u for inputs (a, b), and how far the inner products are off, as three times the vectors show.

    Twice the vectors would show nothing of rounding: a product with a power of two is exact.
    """
    forth, back = action(pair, dy, v), action((pair[1], pair[0]), dy, u)
    more, more_back = action(pair, dy, 3 * v), action((pair[1], pair[0]), dy, 3 * u)
    noise = np.sum(np.abs(u * (more - 3 * forth))) + np.sum(np.abs(v * (more_back - 3 * back)))
    return (forth, back), float(noise)
