"""Adjoint: ⟨dy, jvp(v)⟩ = ⟨vjp(dy), v⟩, the jvp being the vjp's own derivative in dy."""

from collections.abc import Iterator

import numpy as np

from app.gradcheck.comparison import widened
from app.gradcheck.site import Named, Site
from app.gradcheck.target import Target
from app.gradcheck.verdict import Finding, Place, Tally
from ops import Array

NAME = "adjoint"


def check(target: Target) -> Iterator[Finding]:
    """Compare both sides at each site: of an elementwise op number by number."""
    about = Place(NAME, 1, dtype=target.widest)
    if not target.sites[0].claim.linear:
        yield Finding(about, "skipped", "declared not linear in the cotangent, so there is no jvp")
        return
    tally = Tally(about)
    for site in target.smooth:
        back, back_bar = _paired(target, site, "gradients", site.vectors)
        forth, forth_bar = _paired(target, site, "slots", site.cotangents)
        tally.add(forth, back, widened(target, back_bar + forth_bar, back), index=site.sum_index)
    yield tally.finding("⟨dy, jvp(v)⟩", "⟨vjp(dy), v⟩")


def _paired(target: Target, site: Site, what: str, directions: Named) -> tuple[Array, Array]:
    """Return the product of a gradient and its directions, and how far rounding may put it off."""
    products = {name: site.values[what, name] * d for name, d in directions.items()}
    bars = {name: site.bound((what, name), target.widest) * np.abs(d) for name, d in directions.items()}
    return site.summed(products), site.summed(bars)
