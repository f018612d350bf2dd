"""Whether two ways to compute the same values agree: to the last bit, or within the rounding of their terms."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from app.errors import Overloaded
from app.gradcheck import rounding
from app.gradcheck.reproduce import calls
from app.gradcheck.sample import Sample
from app.gradcheck.target import Target
from app.runtime.modes import Key
from app.tensors.dtypes import DTYPES
from ops import Array
from pullback.gradcheck.identities import Repetition
from pullback.gradcheck.number_comparison import Comparison
from pullback.gradcheck.verdict import Finding, Subject

Pair: TypeAlias = tuple[Mapping[Key, Array], Sample]
"""Computed values, and the sample that holds the expected values and their error bounds."""

ORDERS = {"outputs": 0, "gradients": 1, "products": 2, "slots": 2}
NAMES = {0: "y", 1: "dx", 2: "the second order"}
# The most that another order of the terms changes, in units in the last place of each term.
MOST_UNITS = 4.0


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


# TensorFlow adds the terms of a sum in an order that may vary from call to call and from trace to trace, and so do
# the last bits of its results. Random numbers, races, and Python that keeps a state change more than that.
@dataclass(frozen=True)
class Repeated:
    """Values of a sample, and what they were before."""

    sample: Sample
    values: Mapping[Key, Array]
    before: Mapping[Key, Array]

    def is_equal(self, key: Key) -> bool:
        """Whether a value has kept its bits; a NaN may have any."""
        return np.array_equal(self.values[key], self.before[key], equal_nan=self.values[key].dtype.kind not in "iub")


def finding(subject: Subject, repeated: Sequence[Repeated], what: str, against: str, *, why: str) -> Finding:
    """Return the finding on values that should not change.

    It fails if they differ by more than another order of their terms explains. If there is a reason ``why`` this cannot
    be what changes them, it fails for any difference, and says the reason.
    """
    repetition = Repetition(Comparison(subject))
    for each in repeated:
        for key, before in each.before.items():
            allowed, unit, value = np.zeros(()), None, each.values[key]
            if not (why or each.is_equal(key) or value.dtype.kind in "iub"):
                # Without the noise of the op: numbers that change by themselves have some.
                unit = rounding.eps(subject.dtype) * each.sample.rounding.terms[key] + rounding.tiny(subject.dtype)
                allowed = MOST_UNITS * unit
            repetition.add(value, before, allowed, unit, key=key, calls=calls(each.sample, key))
    units = f"up to {repetition.apart:.2g} units in the last place of the terms"
    note = f"not to the last bit, but {units}: TensorFlow adds them in another order"
    return repetition.finding(what, against, note=note, why=why)
