"""Batching: rows that share a call give the results that they give alone; otherwise requests must not share calls."""

from collections.abc import Iterator

import numpy as np

from app.autodiff.binding import moved
from app.autodiff.derivatives import gradient, values_of
from app.gradcheck.reproduce import calls
from app.gradcheck.sample import Sample, Subsample
from app.gradcheck.target import Target
from app.gradcheck.verdict import Comparison, Finding, Place
from app.runtime.modes import Key
from ops import Array

NAME = "batching"
# Where a batch is cut: into a single row, a few rows, and the rest.
CUTS = (1, 4)


def check(target: Target) -> Iterator[Finding]:
    """Cut each sample into parts and compare their results with those of the whole.

    If this fails, the op's claim on batching is not used by the other checks.
    """
    place = Place(NAME, dtype=target.widest)
    if target.batching == "none":
        yield Finding(place, "skipped", "the op does not claim that requests may share a call")
        return
    comparison = Comparison(place, target.tolerances)
    for sample, subsample in zip(target.samples, target.subsamples, strict=True):
        x = next(iter(sample.point.inputs.values()))
        length = x.size if sample.is_elementwise else len(x)
        cuts = [cut for cut in CUTS if cut < length]
        for start, stop in zip((0, *cuts), (*cuts, length), strict=True):
            # The smallest part that differs is the easiest to reproduce.
            if not comparison.wrong:
                _compare(target, comparison, sample, subsample, slice(start, stop))
    yield comparison.finding("a part run alone", "the same part in the whole batch")


def _compare(target: Target, comparison: Comparison, sample: Sample, subsample: Sample, part: slice) -> None:
    inputs, dys = (
        {n: _cut(sample, x, part) for n, x in named.items()} for named in (sample.point.inputs, sample.cotangents)
    )
    point = moved(sample.point, inputs)
    values: dict[Key, Array] = {("outputs", name): y for name, y in values_of(point).run().items()}
    values |= {("gradients", name): dx for name, dx in gradient(point, dys).run().items()}
    for key, value in values.items():
        expected = _cut(sample, sample.values[key], part)
        is_same = (value == expected) | (np.isnan(value) & np.isnan(expected))
        if is_same.all():
            bar = np.zeros(())
        elif isinstance(subsample, Subsample):
            # A large sample: few of its numbers differ, and those of the subsample are enough to measure noise.
            differ = part.start + np.flatnonzero(~is_same)
            some = Subsample.of(sample, np.union1d(subsample.indices, differ))
            bar = np.zeros(value.shape)
            bar[~is_same] = some.error_bound(key, target.widest)[np.searchsorted(some.indices, differ)]
        else:
            bar = _cut(sample, sample.error_bound(key, target.widest), part)
        some = calls(sample, key, point=point, cotangents=dys, needs_all=True)
        # Both values round.
        comparison.add(value, expected, 2 * bar, key=key, calls=some)


def _cut(sample: Sample, x: Array, part: slice) -> Array:
    return x.ravel()[part] if sample.is_elementwise else x[part]
