"""A function run in another way, in a narrower dtype or compiled, beside the function itself."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from pullback.dtypes import Array
from pullback.gradcheck import floats
from pullback.gradcheck.function import Arrays, Function, Point
from pullback.gradcheck.meter import Meter
from pullback.gradcheck.number_comparison import Comparison, Tolerances
from pullback.gradcheck.sample import NOISES, ROUNDINGS, Sample, gradients, largest_of, take, values_at
from pullback.gradcheck.verdict import Finding, Subject

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
    """Return the check of the variants of a kind: of narrower ``dtypes``, or of other ``modes``."""
    return partial(_check, kind=kind)


def _check(
    meter: Meter, samples: Sequence[Sample], subject: Subject, tolerances: Tolerances, *, kind: str
) -> Iterator[Finding]:
    for (there, here), variant in meter.function.variants[kind].items():
        for name, comparison in _compare(meter, variant, samples, subject, tolerances):
            yield comparison.finding(f"{name} {there}", f"{name} {here}")


def _compare(
    meter: Meter, variant: Function, samples: Sequence[Sample], subject: Subject, tolerances: Tolerances
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
        inputs = {slot.name: _rounded(sample.point.inputs, slot.name, slot.dtype) for slot in variant.inputs}
        point = replace(sample.point, inputs=inputs)
        with meter.of(variant) as other:
            found = _taken(other, point, sample, len(samples))
        for name, y in values_at(meter, point).items():
            bar = NOISES * found.noise[name] + ROUNDINGS * found.unit * largest_of(y)
            of_values[name].add(found.values[name], y, bar)
        for pair, dx in gradients(meter, point, found.cotangents, sample.inputs).items():
            of_gradients[pair].add(found.gradients[pair], dx, found.bars[pair], scale=found.terms(pair))
    yield from of_values.items()
    yield from ((f"d{name}", comparison) for (_, name), comparison in of_gradients.items())


def _taken(meter: Meter, point: Point, sample: Sample, seed: int) -> Sample:
    """Return the sample of a variant; one in the same dtypes has the noise of the function itself."""
    variant, values = meter.function, values_at(meter, point)
    if [*variant.inputs, *variant.outputs] != [*sample.inputs, *sample.outputs]:
        slots = ([*variant.inputs], [*variant.outputs])
        return take(meter, point, values, slots, np.random.default_rng(seed), measures_noise=True)
    return replace(sample, values=values, gradients=gradients(meter, point, sample.cotangents, sample.inputs))


def _rounded(inputs: Arrays, name: str, dtype: str) -> Array:
    return inputs[name].astype(np.dtype(dtype)).astype(np.float64)
