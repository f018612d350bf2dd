"""Determinism: evaluating twice gives the same values, to the last bit."""

from collections.abc import Iterator

import numpy as np

from app.gradcheck.reproduce import calls
from app.gradcheck.sample import Sample
from app.gradcheck.target import Target
from app.gradcheck.verdict import Comparison, Finding, Place

NAME = "determinism"


def check(target: Target) -> Iterator[Finding]:
    """Evaluate twice in the widest dtype, and twice in the op's default one."""
    for dtype in dict.fromkeys((target.widest, target.op.dtypes[0])):
        comparison = Comparison(Place(NAME, dtype=dtype))
        for subsample in target.subsamples:
            if (first := target.in_dtype(subsample, dtype)) is not None:
                _compare(comparison, first, Sample(first.point, first.cotangents, first.vectors))
        yield comparison.finding("the second evaluation", "the first")


def _compare(comparison: Comparison, first: Sample, second: Sample) -> None:
    for (what, name), value in first.values.items():
        output = name if what in ("outputs", "slots") else None
        comparison.add(
            second.values[what, name],
            value,
            np.zeros(()),
            of_output=output,
            of_input=None if output else name,
            calls=calls(first, (what, name)),
        )
