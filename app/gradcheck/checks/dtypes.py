"""Dtypes: each agrees with the widest within its own rounding, at inputs that it holds exactly."""

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
        narrow = [here for sample in target.subsamples if (here := target.at(sample, dtype)) is not None]
        try:
            pairs = [(here.values, target.widen(here)) for here in narrow]
        except Overloaded as error:
            yield Finding(place, "skipped", error.detail)
            continue
        yield from agree(target, place, pairs, dtype, target.widest)
