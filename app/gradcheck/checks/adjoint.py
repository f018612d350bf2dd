"""Adjoint: ⟨dy, jvp(v)⟩ = ⟨vjp(dy), v⟩, the jvp being the vjp's own derivative in dy."""

from collections.abc import Iterator

import numpy as np

from app.gradcheck.claimed import widened
from app.gradcheck.site import Site
from app.gradcheck.target import Target
from app.gradcheck.verdict import Finding, Tally
from ops import Array

NAME = "adjoint"


def check(target: Target) -> Iterator[Finding]:
    """Compare both sides at each site: of an elementwise op number by number."""
    if not target.sites[0].claim.linear:
        told = "declared not linear in the cotangent, so there is no jvp"
        yield Finding(NAME, "skipped", told, order=1, mode="graph", dtype=target.widest)
        return
    tally = Tally(target.widest)
    for site in target.sites:
        back, back_bar = _paired(target, site, "gradients", "vectors")
        forth, forth_bar = _paired(target, site, "slots", "cotangents")
        bar = widened(target, back_bar + forth_bar, back)
        settled = np.ones(np.shape(back), bool)
        index = site.index(next(iter(site.vectors))) if site.is_elementwise else _nowhere
        tally.add(forth, back, bar, settled=settled, index=index)
    yield tally.finding(NAME, "⟨dy, jvp(v)⟩", "⟨vjp(dy), v⟩", order=1, mode="graph")


def _paired(target: Target, site: Site, what: str, field: str) -> tuple[Array, Array]:
    """Return the product of a gradient and its directions, and how far rounding may put it off."""
    keys, directions = [key for key in site.values if key[0] == what], getattr(site, field)
    products = [site.values[key] * directions[key[1]] for key in keys]
    bars = [site.bound(key, target.widest) * np.abs(directions[key[1]]) for key in keys]
    if site.is_elementwise:
        return np.sum(products, axis=0), np.sum(bars, axis=0)
    return np.asarray(sum(float(p.sum()) for p in products)), np.asarray(sum(float(b.sum()) for b in bars))


def _nowhere(i: int) -> None:
    del i
