"""Batching: rows that share a call give the results that they give alone; otherwise requests must not share calls."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import numpy as np

from app.autodiff.binding import moved
from app.autodiff.derivatives import gradient, values_of
from app.errors import PullbackError, Unprocessable
from app.gradcheck.company import Company
from app.gradcheck.reproduce import calls
from app.gradcheck.sample import Sample
from app.gradcheck.subsample import Subsample
from app.gradcheck.target import Target
from app.runtime.modes import Key
from ops import ANY_SHAPE, Array, Batching, Op
from pullback.gradcheck.number_comparison import Comparison
from pullback.gradcheck.verdict import Finding, Subject
from pullback.ops._slots import check_batching

NAME = "batching"
UNCLAIMED = "the op does not claim that requests may share a call"
# Where a batch is cut: into a single row, a few rows, and the rest.
CUTS = (1, 4)


def check(target: Target) -> Iterator[Finding]:
    """Cut each sample into parts and compare their results with those of the whole.

    If this fails, the op's claim on batching is not used by the other checks.
    """
    subject = Subject(NAME, dtype=target.widest)
    if target.batching == "none":
        yield Finding(subject, "skipped", "; ".join([UNCLAIMED, *_undeclared(target)]))
        return
    comparison = Comparison(subject, target.options.tolerances)
    # Rows that share inputs, and rows of any rank, are compared in company alone.
    has_one_axis = target.batching != "leading_axes" and not target.op.shared
    for sample, subsample in zip(target.samples, target.subsamples, strict=True) if has_one_axis else ():
        x = next(iter(sample.point.inputs.values()))
        length = x.size if sample.is_elementwise else len(x)
        cuts = [cut for cut in CUTS if cut < length]
        for start, stop in zip((0, *cuts), (*cuts, length), strict=True):
            # The smallest part that differs is the easiest to reproduce.
            if not comparison.wrong:
                _compare(target, comparison, sample, subsample, slice(start, stop))
    modes: list[str] = []
    if not comparison.wrong and any(x.size for x in target.samples[0].point.inputs.values()):
        # The op may reject so many rows, or rows of several points together.
        with suppress(Unprocessable):
            company = Company.of(target)
            company.compare(comparison)
            modes = list(company.modes_that_change_bits()) if not comparison.wrong else []
    finding = comparison.finding("a part run alone", "the same part in the whole batch")
    if modes:
        note = f"a row does not keep its bits beside other rows in mode {', '.join(modes)}: the service will not join"
        finding = replace(finding, sentence=f"{finding.sentence}; {note}")
    yield finding


def _undeclared(target: Target) -> Iterator[str]:
    """Yield what to declare if the rows of an op that declares none are independent at drawn points."""
    if target.op.batching_varies or target.inputs is not None:
        return
    for batching, shared in _candidates(target.op):
        with suppress(ValueError, PullbackError):
            check_batching(batching, shared, target.op.inputs, target.op.outputs, varies=False)
            claimed = replace(target, op=replace(target.op, batching=batching, shared=shared))
            comparison = Comparison(Subject(NAME, dtype=target.widest), target.options.tolerances)
            company = Company.of(claimed)
            company.compare(comparison)
            if comparison.verdict == "pass" and company.is_deterministic and not company.has_equal_rows:
                words = f'batching="{batching}"' + (f", shared={shared}" if shared else "")
                yield f"its rows are independent: declare {words}, and requests of this op can share calls"
                return


def _candidates(op: Op) -> Iterator[tuple[Batching, tuple[str, ...]]]:
    """Yield the declarations that the shapes of an op's slots allow."""
    first = op.outputs[0].shape[:1]
    shared = tuple([slot.name for slot in op.inputs if first and first[0] not in slot.shape])
    if all(slot.shape == ANY_SHAPE for slot in (*op.inputs, *op.outputs)):
        yield "elementwise", ()
    elif first == ANY_SHAPE:
        yield "leading_axes", shared
    elif first:
        yield "leading_axis", shared


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
