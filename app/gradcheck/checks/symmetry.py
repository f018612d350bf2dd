"""Symmetry of the Hessian, where both claims are derivatives: ⟨u, H v⟩ = ⟨v, H u⟩."""

from collections.abc import Iterator, Mapping
from itertools import combinations

import numpy as np

from app.gradcheck.comparison import widened
from app.gradcheck.site import Named, Site, draw
from app.gradcheck.target import Target
from app.gradcheck.verdict import Finding, Place, Tally
from app.modes import Key
from app.second_order import second
from ops import Array, Derivative

NAME = "symmetry"
# Up to so many numbers the Hessian is compared entry by entry.
SMALL = 16
PAIRS = 3
# The bounds are those of the site's vectors; others are up to four times as large.
SLACK = 4


def check(target: Target) -> Iterator[Finding]:
    """Compare entry by entry where the inputs are small, else along random pairs of vectors."""
    claim, about = target.sites[0].claim, Place(NAME, 2, dtype=target.widest)
    if not all(isinstance(one, Derivative) for one in (claim.first, claim.second)):
        yield Finding(about, "skipped", "the gradient does not claim to be a derivative at both orders")
        return
    tally = Tally(about)
    for site in target.smooth:
        if not site.is_elementwise and sum(v.size for v in site.vectors.values()) <= SMALL:
            _by_entry(target, site, tally)
        else:
            _by_pairs(target, site, tally)
    yield tally.finding("H", "its transpose")


def _by_entry(target: Target, site: Site, tally: Tally) -> None:
    bars = np.concatenate([site.bound(("products", name), target.widest).ravel() for name in site.vectors])
    rows: list[Array] = []
    for unit in np.eye(len(bars)):
        target.checkpoint()
        rows.append(_flat(second(site.point, site.cotangents, _split(site, unit))))
    h = np.stack(rows)
    places = [index for v in site.vectors.values() for index in np.ndindex(v.shape)]

    def index(i: int) -> tuple[int, ...]:
        row, column = divmod(i, len(places))
        return (*places[row], *places[column])

    tally.add(h, h.T, widened(target, SLACK * (bars[None, :] + bars[:, None]), h), index=index)


def _by_pairs(target: Target, site: Site, tally: Tally) -> None:
    vectors = [site.vectors]
    for _ in range(PAIRS - 1):
        vectors.append({name: draw(target.rng, v.shape).astype(v.dtype) for name, v in site.vectors.items()})
    products = [second(site.point, site.cotangents, v) for v in vectors]
    for i, j in combinations(range(len(vectors)), 2):
        target.checkpoint()
        one, other = (
            site.summed({name: u * products[b]["products", name] for name, u in vectors[a].items()})
            for a, b in ((i, j), (j, i))
        )
        size = {name: np.abs(u) + np.abs(vectors[j][name]) for name, u in vectors[i].items()}
        bar = site.summed({n: SLACK * site.bound(("products", n), target.widest) * size[n] for n in size})
        tally.add(one, other, widened(target, bar, other), index=site.sum_index)


def _split(site: Site, flat: Array) -> Named:
    found, start = Named(), 0
    for name, v in site.vectors.items():
        found[name] = flat[start : start + v.size].reshape(v.shape).astype(v.dtype)
        start += v.size
    return found


def _flat(values: Mapping[Key, Array]) -> Array:
    products = [value for (what, _), value in values.items() if what == "products"]
    return np.concatenate([np.asarray(product, np.float64).ravel() for product in products])
