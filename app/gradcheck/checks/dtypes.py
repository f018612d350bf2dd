"""Dtypes: each dtype agrees with the widest within its own rounding, at inputs that are exact in it."""

from collections.abc import Iterator

from app.errors import Overloaded
from app.gradcheck.agreement import agree
from app.gradcheck.target import Target
from app.gradcheck.verdict import Finding, Place

NAME = "dtypes"


def check(target: Target) -> Iterator[Finding]:
    """Compare every dtype with the widest."""
    for dtype in target.dtypes:
        if dtype == target.widest:
            continue
        place = Place(NAME, dtype=dtype)
        samples = [narrow for sample in target.subsamples if (narrow := target.in_dtype(sample, dtype)) is not None]
        try:
            pairs = [(narrow.values, target.widen(narrow)) for narrow in samples]
        except Overloaded as error:
            yield Finding(place, "skipped", error.detail)
            continue
        yield from agree(target, place, pairs, dtype, target.widest)
