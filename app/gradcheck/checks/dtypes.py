"""Dtypes: each dtype agrees with the widest within its own rounding, at inputs that are exact in it."""

from collections.abc import Iterator

from app.gradcheck.agreement import agree
from app.gradcheck.target import Target
from pullback.gradcheck.verdict import Finding, Subject

NAME = "dtypes"


def check(target: Target) -> Iterator[Finding]:
    """Compare every dtype with the widest."""
    for dtype in target.dtypes:
        if dtype == target.widest:
            continue
        subject = Subject(NAME, dtype=dtype)
        samples = (target.in_dtype(sample, dtype) for sample in target.subsamples)
        pairs = ((narrow.values, target.widen(narrow)) for narrow in samples if narrow is not None)
        yield from agree(target, subject, pairs, dtype, target.widest)
