"""Determinism: the same question has the same answer, to the last bit."""

from collections.abc import Iterator

import numpy as np

from app.gradcheck.site import Site
from app.gradcheck.target import Target
from app.gradcheck.verdict import Finding, Place, Tally

NAME = "determinism"


def check(target: Target) -> Iterator[Finding]:
    """Ask twice in the widest dtype, and twice in the op's default one."""
    for dtype in dict.fromkeys((target.widest, target.op.dtypes[0])):
        tally = Tally(Place(NAME, dtype=dtype))
        for site in target.samples:
            if (here := target.at(site, dtype)) is not None:
                _compare(tally, here, Site(here.point, here.cotangents, here.vectors))
        yield tally.finding("the second answer", "the first")


def _compare(tally: Tally, one: Site, again: Site) -> None:
    for (what, name), value in one.values.items():
        output = name if what in ("outputs", "slots") else None
        second = again.values[what, name]
        tally.add(second, value, np.zeros(()), of_output=output, of_input=None if output else name)
