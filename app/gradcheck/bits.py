"""Whether values that should be the same are: to the last bit, or else to the rounding of their terms.

TensorFlow adds the terms of a sum in an order that may vary from call to call and from trace to trace, and so do the
last bits of its results. Random numbers, races, and Python that keeps a state change more than that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from app.gradcheck import rounding
from app.gradcheck.reproduce import calls
from app.gradcheck.sample import Sample
from app.runtime.modes import Key
from ops import Array
from pullback.gradcheck.number_comparison import Comparison
from pullback.gradcheck.verdict import Finding, Subject

# The most that another order of the terms changes, in units in the last place of each term.
MOST_UNITS = 4.0


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
    comparison = Comparison(subject)
    changed, units = False, 0.0
    for each in repeated:
        for key, before in each.before.items():
            bar, value = np.zeros(()), each.values[key]
            if not each.is_equal(key):
                changed = True
                if not why and value.dtype.kind not in "iub":
                    # Without the noise of the op: numbers that change by themselves have some.
                    unit = rounding.eps(subject.dtype) * each.sample.rounding.terms[key] + rounding.tiny(subject.dtype)
                    bar, units = MOST_UNITS * unit, max(units, _units(value, before, unit))
            comparison.add(value, before, bar, key=key, calls=calls(each.sample, key))
    found = comparison.finding(what, against)
    if found.verdict == "fail" and why:
        return replace(found, sentence=f"{found.sentence}; {why}")
    if found.verdict == "pass" and changed:
        note = f"not to the last bit, but up to {units:.2g} units in the last place of the terms"
        return replace(found, sentence=f"{found.sentence}; {note}: TensorFlow adds them in another order")
    return found


def _units(value: Array, before: Array, unit: Array) -> float:
    with np.errstate(invalid="ignore", over="ignore"):
        ratio = np.abs(np.asarray(value, np.float64) - np.asarray(before, np.float64)) / unit
    return float(np.nan_to_num(ratio, posinf=0.0).max(initial=0.0))
