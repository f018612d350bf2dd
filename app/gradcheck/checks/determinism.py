"""Determinism: the same question has the same answer, to the last bit."""

from collections.abc import Iterator

import numpy as np

from app.gradcheck.site import Site
from app.gradcheck.target import Target
from app.gradcheck.verdict import Finding, Tally

NAME = "determinism"


def check(target: Target) -> Iterator[Finding]:
    """Ask twice in the widest dtype, and twice in the op's default one."""
    for dtype in dict.fromkeys((target.widest, target.op.dtypes[0])):
        tally = Tally(dtype)
        for site in target.sites:
            if (here := target.at(site, dtype)) is not None:
                _compare(tally, here, Site(here.point, here.cotangents, here.vectors))
        yield tally.finding(NAME, "the second answer", "the first", mode="graph")


def _compare(tally: Tally, one: Site, again: Site) -> None:
    for key, value in one.values.items():
        place = {"output": key[1]} if key[0] in ("outputs", "slots") else {"input": key[1]}
        tally.add(again.values[key], value, np.zeros(value.shape), **place)
