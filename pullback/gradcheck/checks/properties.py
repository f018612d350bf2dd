"""What holds for every derivative, whatever its values.

It repeats itself, does not depend on what else is asked for, and is linear, adjoint and symmetric.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations_with_replacement, islice

import numpy as np

from pullback.dtypes import Array
from pullback.gradcheck import floats, identities
from pullback.gradcheck.function import Arrays
from pullback.gradcheck.identities import Identity, Inner, Repetition
from pullback.gradcheck.meter import Meter
from pullback.gradcheck.number_comparison import Comparison, Tolerances
from pullback.gradcheck.reproduction import GradientCall
from pullback.gradcheck.sample import (
    NOISES,
    RATIO,
    Pair,
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
    repetition = Repetition(Comparison(subject, tolerances))
    for sample in samples:
        values, found = meter.values(sample.point), gradients(meter, sample.point, sample.cotangents, sample.inputs)
        again = [(("outputs", name), y, sample.values[name]) for name, y in values.items()]
        again += [(("gradients", pair[1]), dx, sample.gradients[pair]) for pair, dx in found.items()]
        for key, value, before in again:
            allowed, largest = _allowed(meter, sample, before), np.array(largest_of(before))
            repetition.add(value, before, allowed, largest, key=key)
    note = (
        f"not bit for bit: numbers differ by up to {repetition.apart:.1g} of the largest, as the noise of a solver does"
    )
    why = "if it draws random numbers or keeps state, give it a seed, or call .eval() of a module with dropout"
    is_here = meter.function.changed is not None
    yield repetition.finding("the second evaluation", "the first", note=note, why=why if is_here else "")


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


def linearity(meter: Meter, samples: Sequence[Sample], subject: Subject, tolerances: Tolerances) -> Iterator[Finding]:
    """Compare vjp(2a + 3b) with 2 vjp(a) + 3 vjp(b), and in this process, where calls are cheap, other sums."""
    comparisons: dict[tuple[str, str], dict[Pair, Comparison]] = {}
    rng = np.random.default_rng(len(samples))
    for sample in samples:
        for identity in _identities(meter, sample, rng):
            found = gradients(meter, sample.point, identity.cotangents, sample.inputs)
            by_pair = comparisons.setdefault((identity.left, identity.right), _by_pair(sample, subject, tolerances))
            for pair, comparison in by_pair.items():
                call = GradientCall(meter, sample, pair, identity.cotangents[pair[0]])
                bar, scale = partial(_bar_of, meter, sample, identity, pair), sample.terms(pair)
                identities.compare(comparison, identity, pair, found[pair], bar, scale=scale, calls=_always(call))
    for (left, right), by_pair in comparisons.items():
        for (_, name), comparison in by_pair.items():
            yield comparison.finding(f"{left} in {name}", right)


def _identities(meter: Meter, sample: Sample, rng: np.random.Generator) -> Iterator[Identity[Pair]]:
    def vjp(cotangents: Arrays) -> dict[Pair, Array]:
        return gradients(meter, sample.point, cotangents, sample.inputs)

    b = {slot.name: directions(slot, np.ones(slot.shape), rng) for slot in sample.outputs}
    sums = identities.sums(vjp, sample.cotangents, sample.gradients, b)
    is_here = meter.function.changed is not None
    yield from sums if is_here else islice(sums, 1)
    if is_here:
        is_half = any(slot.dtype == "float16" for slot in (*sample.inputs, *sample.outputs))
        yield from identities.scaled(sample.cotangents, sample.gradients, (2.0 ** (3 if is_half else 20), 0.0))


def _bar_of(meter: Meter, sample: Sample, identity: Identity[Pair], pair: Pair, terms: Array) -> Array:
    # A solver may stop where its numbers are small, whatever the cotangent.
    of_solver = meter.function.tolerance * largest_of(sample.gradients[pair])
    return RATIO * identity.size * sample.bars[pair] + rounding(sample.unit) * terms + of_solver


def _by_pair(sample: Sample, subject: Subject, tolerances: Tolerances) -> dict[Pair, Comparison]:
    return {pair: Comparison(replace(subject, output=pair[0], input=pair[1]), tolerances) for pair in sample.gradients}


def _always(call: GradientCall) -> Callable[[int], GradientCall]:
    return lambda _: call


def adjoint(meter: Meter, samples: Sequence[Sample], subject: Subject, tolerances: Tolerances) -> Iterator[Finding]:
    """Compare ⟨dy, jvp(v)⟩ with ⟨vjp(dy), v⟩."""
    comparisons = _by_pair(samples[0], subject, tolerances)
    rng = np.random.default_rng(len(samples))
    for sample in samples:
        for slot in sample.inputs:
            v = balance(vectors(slot, rng), sample.size_in(slot.name))
            pushed = meter.jvp(sample.point, slot.name, v, list(sample.cotangents))
            for output, dy in sample.cotangents.items():
                pair = (output, slot.name)
                largest = np.full(dy.shape, np.abs(pushed[output]).max(initial=0.0))
                forth = _inner(pushed[output], dy, sample.relative_bar(pair) * largest)
                back = _inner(sample.gradients[pair], v, sample.bars[pair])
                scale = np.max(np.abs(v) * sample.terms(pair), initial=0.0)
                identities.compare_inner(comparisons[pair], forth, back, scale=scale, index=_nowhere)
    for comparison in comparisons.values():
        yield comparison.finding("⟨dy, jvp(v)⟩", "⟨vjp(dy), v⟩")


def _nowhere(_: int) -> None:
    return None


def symmetry(meter: Meter, samples: Sequence[Sample], subject: Subject, tolerances: Tolerances) -> Iterator[Finding]:
    """Compare ⟨u, H v⟩ with ⟨v, H u⟩. How far H(3v) is from 3 H v shows the noise of a Hessian's action.

    Twice the vectors would show nothing of rounding: a product with a power of two is exact.
    """
    comparison, rng = Comparison(replace(subject, order=2), tolerances), np.random.default_rng(len(samples))
    for sample in samples:
        for slot in sample.outputs:
            for one, other in combinations_with_replacement(sample.inputs, 2):
                sizes = (sample.sizes[slot.name, each.name] ** 0.5 for each in (one, other))
                u, v = (balance(vectors(each, rng), size) for each, size in zip((one, other), sizes, strict=True))
                relative = max(sample.relative_bar((slot.name, each.name)) for each in (one, other))
                dy, sides = sample.cotangents[slot.name], list[Inner]()
                for a, b, along, times in ((one, other, v, u), (other, one, u, v)):
                    action = partial(meter.hessian, sample.point, slot.name, (a.name, b.name), dy)
                    product = action(along)
                    bars = NOISES * np.abs(action(3 * along) - 3 * product) + RATIO * relative * np.abs(product)
                    sides.append(_inner(product, times, bars))
                forth, back = sides
                identities.compare_inner(comparison, forth, back, index=_nowhere)
    yield comparison.finding("⟨u, H v⟩", "⟨v, H u⟩")


def _inner(derivatives: Array, directions: Array, bars: Array) -> Inner:
    """Return the inner product as one number."""
    named = ({"": each} for each in (derivatives, directions, bars))
    return identities.inner(lambda products: np.sum(products[""])[None], *named)
