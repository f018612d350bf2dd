"""Whether two ways to compute the same agree: outputs, gradients and second order, each within its rounding."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from app.gradcheck.comparison import widened
from app.gradcheck.sample import Sample
from app.gradcheck.target import Target
from app.gradcheck.verdict import Comparison, Finding, Place
from app.runtime.eager import Key
from app.tensors.dtypes import DTYPES
from ops import Array

Pair: TypeAlias = tuple[Mapping[Key, Array], Sample]
"""What was found, and the sample whose values it is compared with, which tells how far it may be off."""

ORDERS = {"outputs": 0, "gradients": 1, "products": 2, "slots": 2}
WHAT = {0: "y", 1: "dx", 2: "the second order"}


def agree(target: Target, place: Place, pairs: Sequence[Pair], what: str, against: str) -> Iterator[Finding]:
    """Yield a finding an order: what was found, against the values of the samples, within the rounding of its dtype."""
    for order in sorted({0, *target.options.orders}):
        comparison = Comparison(replace(place, order=order))
        for found, sample in pairs:
            for key in found:
                if ORDERS[str(key[0])] == order:
                    _add(target, comparison, key, found[key], sample)
        yield comparison.finding(f"{WHAT[order]} ({what})", against)


def _add(target: Target, comparison: Comparison, key: Key, found: Array, sample: Sample) -> None:
    what, name = key
    expected, dtype = np.asarray(sample.values[key], np.float64), comparison.place.dtype
    # What a narrow dtype cannot hold is infinite in it, and rightly so.
    expected = np.where(np.abs(expected) >= DTYPES[dtype].high, np.copysign(np.inf, expected), expected)
    is_whole = sample.values[key].dtype.kind in "iub"
    allowed = np.zeros(()) if is_whole else widened(target, sample.bound(key, dtype), expected)
    # Nor does it tell anything where rounding may throw an answer beyond all that it holds.
    allowed = np.where(allowed >= DTYPES[dtype].high, np.inf, allowed)
    output = name if what in ("outputs", "slots") else None
    comparison.add(found, expected, allowed, of_output=output, of_input=None if output else name)
