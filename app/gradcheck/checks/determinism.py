"""Determinism: the same question has the same answer, to the last bit."""

from collections.abc import Iterator

import numpy as np

from app.gradcheck.sample import Sample
from app.gradcheck.target import Target
from app.gradcheck.verdict import Comparison, Finding, Place

NAME = "determinism"


def check(target: Target) -> Iterator[Finding]:
    """Ask twice in the widest dtype, and twice in the op's default one."""
    for dtype in dict.fromkeys((target.widest, target.op.dtypes[0])):
        comparison = Comparison(Place(NAME, dtype=dtype))
        for sample in target.subsamples:
            if (here := target.at(sample, dtype)) is not None:
                _compare(comparison, here, Sample(here.point, here.cotangents, here.vectors))
        yield comparison.finding("the second answer", "the first")


def _compare(comparison: Comparison, one: Sample, again: Sample) -> None:
    for (what, name), value in one.values.items():
        output = name if what in ("outputs", "slots") else None
        second = again.values[what, name]
        comparison.add(second, value, np.zeros(()), of_output=output, of_input=None if output else name)
