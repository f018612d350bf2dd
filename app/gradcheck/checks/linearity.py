"""Linearity: vjp(2a + 3b) = 2 vjp(a) + 3 vjp(b), unless the op declares that it is not linear."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from app.derivatives import Absent, vjp
from app.gradcheck.comparison import widened
from app.gradcheck.site import Named, Site, draw
from app.gradcheck.target import Target
from app.gradcheck.verdict import Finding, Place, Tally

NAME = "linearity"
# Each of the three vjps is off by as much as that of the site, times its weight and the ratio of their cotangents.
SLACK = 20


def check(target: Target) -> Iterator[Finding]:
    """Compare both sides for each input."""
    about = Place(NAME, 1, dtype=target.widest)
    if not target.sites[0].claim.linear:
        yield Finding(about, "skipped", "declared not linear in the cotangent")
        return
    tallies = {name: Tally(replace(about, input=name)) for name in target.sites[0].vectors}
    for site in target.smooth:
        _compare(target, site, tallies)
    for name, tally in tallies.items():
        yield tally.finding(f"vjp(2a + 3b) in {name}", "2 vjp(a) + 3 vjp(b)")


def _compare(target: Target, site: Site, tallies: Mapping[str, Tally]) -> None:
    other = {name: draw(target.rng, dy.shape).astype(dy.dtype) for name, dy in site.cotangents.items()}
    both = {name: 2 * dy + 3 * other[name] for name, dy in site.cotangents.items()}
    one, two, together = (_gradients(site, dys) for dys in (site.cotangents, other, both))
    for name, tally in tallies.items():
        expected = 2 * one[name] + 3 * two[name]
        allowed = widened(target, SLACK * site.bound(("gradients", name), target.widest), expected)
        tally.add(together[name], expected, allowed, index=site.index(name))


def _gradients(site: Site, dys: Named) -> Named:
    _, found = vjp(site.point, tuple(site.vectors), dys, batched=False, outputs=False).run()
    return {name: 0 * site.vectors[name] if isinstance(dx, Absent) else dx for name, dx in found.items()}
