"""Whether two ways to compute the same values agree, within their rounding or bit by bit."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from app.errors import Overloaded
from app.gradcheck.reproduce import calls
from app.gradcheck.sample import Sample
from app.gradcheck.target import Target
from app.runtime.modes import Key
from app.tensors.dtypes import DTYPES
from ops import Array
from pullback.gradcheck.number_comparison import Comparison
from pullback.gradcheck.verdict import Finding, Subject

Pair: TypeAlias = tuple[Mapping[Key, Array], Sample]
"""Computed values, and the sample that holds the expected values and their error bounds."""

ORDERS = {"outputs": 0, "gradients": 1, "products": 2, "slots": 2}
NAMES = {0: "y", 1: "dx", 2: "the second order"}


def agree(
    target: Target, subject: Subject, pairs: Iterable[Pair], what: str, against: str, *, device: str | None = None
) -> Iterator[Finding]:
    """Yield a finding per order: the values against those of the samples, within the rounding of the subject's dtype.

    ``device`` is TensorFlow's name of the device of the values, if it is another than that of the samples.
    """
    try:
        pairs = list(pairs)
    except Overloaded as error:
        yield Finding(subject, "skipped", error.detail)
        return
    for order in sorted({0, *target.orders}):
        comparison = Comparison(replace(subject, order=order), target.options.tolerances)
        for values, sample in pairs:
            for key, value in values.items():
                if ORDERS[str(key[0])] == order:
                    _add(target, comparison, key, value, sample, device=device)
        yield comparison.finding(f"{NAMES[order]} ({what})", against)


def _add(target: Target, comparison: Comparison, key: Key, value: Array, sample: Sample, *, device: str | None) -> None:
    expected, dtype = np.asarray(sample.values[key], np.float64), comparison.subject.dtype
    # Values beyond the range of a narrow dtype are correctly infinite in it.
    expected = np.where(np.abs(expected) >= DTYPES[dtype].high, np.copysign(np.inf, expected), expected)
    # Both values round: two values of the widest dtype may be off in either direction.
    roundings = 2 if dtype == target.widest else 1
    is_whole = sample.values[key].dtype.kind in "iub"
    allowed = np.zeros(()) if is_whole else sample.allowed(key, dtype, value, expected, times=roundings)
    # A bound beyond the range of the dtype allows any value.
    allowed = np.where(allowed >= DTYPES[dtype].high, np.inf, allowed)
    spec = sample.point.spec
    spec = replace(spec, mode=comparison.subject.mode, dtype=dtype, device=device or spec.device)
    some = calls(sample, key, point=replace(sample.point, spec=spec))
    comparison.add(value, expected, allowed, key=key, calls=some)
