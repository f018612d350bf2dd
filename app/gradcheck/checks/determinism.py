"""Determinism: evaluating twice gives the same values, to the last bit."""

from collections.abc import Iterator

from app.gradcheck.agreement import add_bits
from app.gradcheck.target import Target
from app.gradcheck.verdict import Comparison, Finding, Place

NAME = "determinism"


def check(target: Target) -> Iterator[Finding]:
    """Evaluate twice in the widest dtype, and twice in the op's default one."""
    for dtype in dict.fromkeys((target.widest, target.op.dtypes[0])):
        comparison = Comparison(Place(NAME, dtype=dtype))
        for subsample in target.subsamples:
            if (sample := target.in_dtype(subsample, dtype)) is not None:
                again = sample.again().values
                add_bits(comparison, sample, again, sample.values)
        yield comparison.finding("the second evaluation", "the first")
