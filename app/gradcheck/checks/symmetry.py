"""Symmetry of the Hessian, where both claims are derivatives: ⟨u, H v⟩ = ⟨v, H u⟩."""

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from app.derivatives import second
from app.gradcheck.claimed import widened
from app.gradcheck.site import Named, Site, draw
from app.gradcheck.target import Target
from app.gradcheck.verdict import Finding, Tally
from ops import Array, Derivative

NAME = "symmetry"
# Up to so many numbers the Hessian is compared entry by entry.
SMALL = 16
PAIRS = 3


def check(target: Target) -> Iterator[Finding]:
    """Compare entry by entry where the inputs are small, else along random pairs of vectors."""
    claim = target.sites[0].claim
    if not all(isinstance(one, Derivative) for one in (claim.first, claim.second)):
        told = "the gradient does not claim to be a derivative at both orders"
        yield Finding(NAME, "skipped", told, order=2, mode="graph", dtype=target.widest)
        return
    tally = Tally(target.widest)
    for site in target.smooth:
        if not site.is_elementwise and sum(v.size for v in site.vectors.values()) <= SMALL:
            _by_entry(target, site, tally)
        else:
            _by_pairs(target, site, tally)
    yield tally.finding(NAME, "H", "its transpose", order=2, mode="graph")


def _by_entry(target: Target, site: Site, tally: Tally) -> None:
    rows, bars = [], np.concatenate([site.bound(("products", n), target.widest).ravel() for n in site.vectors])
    for unit in np.eye(len(bars)):
        target.checkpoint()
        rows.append(_flat(second(site.point, site.cotangents, _split(site, unit))))
    h = np.stack(rows)
    # One unit vector is smaller than the vectors that the bounds are for, but for the largest of these.
    bar = widened(target, 4 * (bars[None, :] + bars[:, None]), h)
    places = [(name, index) for name, v in site.vectors.items() for index in np.ndindex(v.shape)]

    def index(i: int) -> tuple[int, ...]:
        row, column = divmod(i, len(places))
        return (*places[row][1], *places[column][1])

    tally.add(h, h.T, bar, settled=np.ones(h.shape, bool), index=index)


def _by_pairs(target: Target, site: Site, tally: Tally) -> None:
    vectors = [site.vectors, *({n: draw(target.rng, v.shape).astype(v.dtype) for n, v in site.vectors.items()} for _ in range(PAIRS - 1))]
    products = [second(site.point, site.cotangents, v) for v in vectors]
    for i, j in combinations(range(len(vectors)), 2):
        target.checkpoint()
        sides = [
            {n: vectors[a][n] * products[b]["products", n] for n in site.vectors} for a, b in ((i, j), (j, i))
        ]
        bars = {
            n: 4 * site.bound(("products", n), target.widest) * (np.abs(vectors[i][n]) + np.abs(vectors[j][n]))
            for n in site.vectors
        }
        one, other, bar = (_summed(site, side) for side in (*sides, bars))
        index = site.index(next(iter(site.vectors))) if site.is_elementwise else _nowhere
        tally.add(one, other, widened(target, bar, other), settled=np.ones(np.shape(one), bool), index=index)


def _summed(site: Site, named: Named) -> Array:
    """Add what belongs together: place by place for an elementwise op, else all."""
    if site.is_elementwise:
        return np.sum(list(named.values()), axis=0)
    return np.asarray(sum(float(np.sum(value)) for value in named.values()))


def _split(site: Site, flat: Array) -> Named:
    found, start = Named(), 0
    for name, v in site.vectors.items():
        found[name] = flat[start : start + v.size].reshape(v.shape).astype(v.dtype)
        start += v.size
    return found


def _flat(values: dict) -> Array:
    return np.concatenate([np.asarray(value, np.float64).ravel() for (what, _), value in values.items() if what == "products"])


def _nowhere(i: int) -> None:
    del i
