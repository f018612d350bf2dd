"""Adjoint: ⟨dy, jvp(v)⟩ = ⟨vjp(dy), v⟩, the jvp being the vjp's own derivative in dy."""

from collections.abc import Iterator

import numpy as np

from app.gradcheck.comparison import widened
from app.gradcheck.sample import Arrays, Sample
from app.gradcheck.target import Target
from app.gradcheck.verdict import Comparison, Finding, Place
from ops import Array

NAME = "adjoint"


def check(target: Target) -> Iterator[Finding]:
    """Compare both sides at each sample: of an elementwise op number by number."""
    about = Place(NAME, 1, dtype=target.widest)
    if not target.samples[0].claim.linear:
        yield Finding(about, "skipped", "declared not linear in the cotangent, so there is no jvp")
        return
    comparison = Comparison(about)
    for sample in target.smooth:
        back, back_bar = _paired(target, sample, "gradients", sample.vectors)
        forth, forth_bar = _paired(target, sample, "slots", sample.cotangents)
        comparison.add(forth, back, widened(target, back_bar + forth_bar, back), index=sample.sum_index)
    yield comparison.finding("⟨dy, jvp(v)⟩", "⟨vjp(dy), v⟩")


def _paired(target: Target, sample: Sample, what: str, directions: Arrays) -> tuple[Array, Array]:
    """Return the product of a gradient and its directions, and how far rounding may put it off."""
    products = {name: sample.values[what, name] * d for name, d in directions.items()}
    bars = {name: sample.bound((what, name), target.widest) * np.abs(d) for name, d in directions.items()}
    return sample.summed(products), sample.summed(bars)
