"""Linearity: vjp(2a + 3b) = 2 vjp(a) + 3 vjp(b), unless the op declares that it is not linear."""

from collections.abc import Iterator

from app.derivatives import Absent, vjp
from app.gradcheck import rounding
from app.gradcheck.claimed import widened
from app.gradcheck.site import Named, Site, draw
from app.gradcheck.target import Target
from app.gradcheck.verdict import Finding, Tally
from app.tensors.dtypes import DTYPES

NAME = "linearity"


def check(target: Target) -> Iterator[Finding]:
    """Compare both sides for each input."""
    if not target.sites[0].claim.linear:
        yield Finding(NAME, "skipped", "declared not linear in the cotangent", order=1, mode="graph", dtype=target.widest)
        return
    tallies = {name: Tally(target.widest) for name in target.sites[0].vectors}
    for site in target.sites:
        other = {name: _like(target, dy) for name, dy in site.cotangents.items()}
        both = {name: 2 * dy + 3 * other[name] for name, dy in site.cotangents.items()}
        one, two, sum_ = (_gradients(site, dys) for dys in (site.cotangents, other, both))
        for name, tally in tallies.items():
            expected = 2 * one[name] + 3 * two[name]
            # Each of the three is off by as much as one is, times its weight and its cotangents' size.
            bar = 20 * site.bound(("gradients", name), target.widest) + rounding.tiny(target.widest)
            tally.add(
                sum_[name], expected, widened(target, bar, expected), settled=expected == expected, index=site.index(name)
            )
    for name, tally in tallies.items():
        what = f"vjp(2a + 3b) in {name}"
        yield tally.finding(NAME, what, "2 vjp(a) + 3 vjp(b)", order=1, input=name, mode="graph")


def _like(target: Target, dy: Named | object) -> object:
    return draw(target.rng, dy.shape).astype(dy.dtype)


def _gradients(site: Site, dys: Named) -> Named:
    _, found = vjp(site.point, tuple(site.vectors), dys, batched=False, outputs=False)
    return {name: 0 * site.vectors[name] if isinstance(dx, Absent) else dx for name, dx in found.items()}
