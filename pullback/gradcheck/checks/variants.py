"""A function run in another way, in a narrower dtype or compiled, beside the function itself."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from pullback.errors import BadAnswer
from pullback.gradcheck import floats
from pullback.gradcheck.function import Variant
from pullback.gradcheck.meter import Meter
from pullback.gradcheck.number_comparison import Comparison, Tolerances
from pullback.gradcheck.sample import NOISES, Sample, gradients, largest_of, rounding, take, values_at
from pullback.gradcheck.verdict import Finding, Subject

AROUND, MOST_ULPS, MOST_NOISE = 3, 16.0, 2.0**-12
"""How many points show the noise around one with equal numbers, how far they are, and how large it may be."""

Check = Callable[[Meter, Sequence[Sample], Subject, Tolerances], Iterator[Finding]]


def mutation(meter: Meter, samples: Sequence[Sample], subject: Subject, tolerances: Tolerances) -> Iterator[Finding]:
    """Say whether a call so far has written into an input."""
    del samples, tolerances
    if changed := meter.function.changed:
        sentence = f"the function, or its gradient, writes into {changed}: copy an array before you change it"
        yield Finding(replace(subject, input=changed), "fail", sentence)
    else:
        yield Finding(subject, "pass", "no call has changed an input")


def variants(kind: str) -> Check:
    """Return the check of the variants of a kind: of narrower ``dtypes``, other ``modes`` or ``layouts``."""
    return partial(_check, kind=kind)


def _check(
    meter: Meter, samples: Sequence[Sample], subject: Subject, tolerances: Tolerances, *, kind: str
) -> Iterator[Finding]:
    for (there, here), variant in meter.function.variants[kind].items():
        for name, comparison in _compare(meter, variant, samples, subject, tolerances):
            yield comparison.finding(f"{name} {there}", f"{name} {here}")


def _compare(
    meter: Meter, variant: Variant, samples: Sequence[Sample], subject: Subject, tolerances: Tolerances
) -> Iterator[tuple[str, Comparison]]:
    """Compare values and gradients, at the same points, within the noise and the rounding of the variant."""
    dtype = max((slot.dtype for slot in (*variant.inputs, *variant.outputs)), key=floats.eps)
    subject = replace(subject, dtype=dtype)
    of_values = {
        slot.name: Comparison(replace(subject, order=0, output=slot.name), tolerances) for slot in variant.outputs
    }
    of_gradients = {
        pair: Comparison(replace(subject, output=pair[0], input=pair[1]), tolerances) for pair in samples[0].gradients
    }
    for sample in samples:
        if (here := _here(meter, variant, sample)) is None:
            continue
        with meter.of(variant) as other:
            found = _there(other, here)
        for name, y in here.values.items():
            bar = NOISES * found.noise[name] + rounding(found.unit) * largest_of(y)
            of_values[name].add(found.values[name], y, bar)
        for pair, dx in here.gradients.items():
            # Where terms cancel, as in the gradient of a softmax that is nearly 1, few draws show no noise.
            terms = found.terms(pair)
            of_gradients[pair].add(found.gradients[pair], dx, found.bars[pair] + found.unit * terms, scale=terms)
    yield from of_values.items()
    yield from ((f"d{name}", comparison) for (_, name), comparison in of_gradients.items())


def _there(meter: Meter, here: Sample) -> Sample:
    """Return the sample of a variant; one in the same dtypes has the noise of the function itself."""
    variant, values = meter.function, values_at(meter, here.point)
    slots = ([*variant.inputs], [*variant.outputs])
    if slots == ([*here.inputs], [*here.outputs]):
        return replace(here, values=values, gradients=gradients(meter, here.point, here.cotangents, here.inputs))
    rng = np.random.default_rng(len(here.gradients))
    return take(meter, here.point, values, slots, rng, measures_noise=True, cotangents=here.cotangents)


def _here(meter: Meter, variant: Variant, sample: Sample) -> Sample | None:
    """Return the sample of the function at the point that a variant takes; ``None`` if it says nothing there."""
    inputs, cotangents = variant.nearest(sample.point.inputs, sample.cotangents)
    point = replace(sample.point, inputs=inputs)
    try:
        values, found = values_at(meter, point), gradients(meter, point, cotangents, sample.inputs)
    except BadAnswer:
        return None
    here = replace(sample, point=point, cotangents=cotangents, values=values, gradients=found)
    is_moved = any(not np.array_equal(x, sample.point.inputs[name]) for name, x in inputs.items())
    return _with_noise(meter, here) if is_moved and variant.inputs == sample.inputs else here


def _with_noise(meter: Meter, here: Sample) -> Sample | None:
    """Return a sample with the noise around a point with equal numbers; ``None`` if it is large.

    Where they make a matrix singular, results change by more than rounding as the numbers become unequal.
    """
    rng, eps = np.random.default_rng(len(here.gradients)), max(floats.eps(slot.dtype) for slot in here.inputs)
    noise, bars = dict.fromkeys(here.values, 0.0), dict.fromkeys(here.gradients, 0.0)
    for _ in range(AROUND):
        moved = {name: x * (1 + MOST_ULPS * eps * rng.uniform(-1, 1, x.shape)) for name, x in here.point.inputs.items()}
        point = replace(here.point, inputs=moved)
        try:
            values, found = meter.values(point), gradients(meter, point, here.cotangents, here.inputs)
        except BadAnswer:
            return None
        noise = {name: max(size, largest_of(values[name] - here.values[name])) for name, size in noise.items()}
        bars = {pair: max(size, largest_of(found[pair] - here.gradients[pair])) for pair, size in bars.items()}
    sizes = {pair: largest_of(dx) for pair, dx in here.gradients.items()}
    if any(bars[pair] > MOST_NOISE * size for pair, size in sizes.items()):
        return None
    return replace(
        here,
        noise={name: np.full_like(y, noise[name]) for name, y in here.values.items()},
        bars={
            pair: np.full_like(dx, NOISES * bars[pair] + rounding(here.unit) * sizes[pair])
            for pair, dx in here.gradients.items()
        },
    )
