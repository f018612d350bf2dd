"""Symmetry of the Hessian, if both claims are derivatives: ⟨u, H v⟩ = ⟨v, H u⟩."""

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from app.autodiff.derivatives import second_order_values
from app.autodiff.point import Arrays
from app.gradcheck.reproduce import Call, calls
from app.gradcheck.sample import Sample, draw
from app.gradcheck.target import Target
from ops import Array, Derivative
from pullback.gradcheck.identities import compare_inner, inner
from pullback.gradcheck.number_comparison import Comparison
from pullback.gradcheck.verdict import Finding, Subject

NAME = "symmetry"
# The most input numbers for which the Hessian is compared entry by entry.
SMALL = 16
PAIRS = 3
# The bounds are those of the sample's vectors; other vectors are up to four times as large.
RATIO = 4


def check(target: Target) -> Iterator[Finding]:
    """Compare entry by entry if the inputs are small, else along random pairs of vectors."""
    claim, subject = target.samples[0].claim, Subject(NAME, 2, dtype=target.widest)
    if not all(isinstance(order, Derivative) for order in (claim.first, claim.second)):
        yield Finding(subject, "skipped", "the gradient does not claim to be a derivative at both orders")
        return
    comparison, rng = Comparison(subject, target.options.tolerances), target.rng(NAME)
    for sample in target.nonsingular:
        if not sample.is_elementwise and sum(v.size for v in sample.vectors.values()) <= SMALL:
            _by_entry(target, sample, comparison)
        else:
            _by_pairs(target, sample, comparison, rng)
    yield comparison.finding("H", "its transpose")


def _by_entry(target: Target, sample: Sample, comparison: Comparison) -> None:
    bars = np.concatenate([bound.ravel() for bound in _bounds(target, sample).values()])
    units = [_split(sample, unit) for unit in np.eye(len(bars))]
    rows: list[Array] = []
    for vectors in units:
        target.checkpoint()
        values = second_order_values(sample.point, sample.cotangents, vectors).run()
        products = [value for (what, _), value in values.items() if what == "products"]
        rows.append(np.concatenate([np.asarray(product, np.float64).ravel() for product in products]))
    h = np.stack(rows)
    elements = [(name, index) for name, v in sample.vectors.items() for index in np.ndindex(v.shape)]

    def index(i: int) -> tuple[int, ...]:
        row, column = divmod(i, len(elements))
        return (*elements[row][1], *elements[column][1])

    def entry(i: int) -> Call:
        row, column = divmod(i, len(elements))
        name, at = elements[column]
        return Call(sample.point, ("products", name), sample.cotangents, units[row], index=at)

    allowed = RATIO * (bars[None, :] + bars[:, None])
    comparison.add(h, h.T, allowed, index=index, calls=entry)


def _by_pairs(target: Target, sample: Sample, comparison: Comparison, rng: np.random.Generator) -> None:
    vectors = [sample.vectors]
    for _ in range(PAIRS - 1):
        vectors.append({name: draw(rng, v.shape).astype(v.dtype) for name, v in sample.vectors.items()})
    products = [second_order_values(sample.point, sample.cotangents, v).run() for v in vectors]
    bars = {name: RATIO * bound for name, bound in _bounds(target, sample).items()}
    for i, j in combinations(range(len(vectors)), 2):
        target.checkpoint()
        forth, back = (
            inner(sample.total, {name: products[b]["products", name] for name in bars}, vectors[a], bars)
            for a, b in ((i, j), (j, i))
        )
        some = calls(sample, ("products", next(iter(bars))), vectors=vectors[j], times=vectors[i])
        compare_inner(comparison, forth, back, index=sample.total_index, calls=some)


def _bounds(target: Target, sample: Sample) -> dict[str, Array]:
    """Return the rounding error of H v, which is unknown where it overflows."""
    bounds = sample.error_bounds("products", target.widest)
    return {name: np.where(np.isfinite(y), bounds[name], np.inf) for name, y in sample.of_kind("products").items()}


def _split(sample: Sample, flat: Array) -> Arrays:
    vectors, start = dict[str, Array](), 0
    for name, v in sample.vectors.items():
        vectors[name] = flat[start : start + v.size].reshape(v.shape).astype(v.dtype)
        start += v.size
    return vectors
