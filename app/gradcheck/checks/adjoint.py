"""Adjoint: ⟨dy, jvp(v)⟩ = ⟨vjp(dy), v⟩, where the jvp is the derivative of the vjp in dy."""

from collections.abc import Iterator

import numpy as np

from app.autodiff.point import Arrays
from app.errors import OpFailed
from app.gradcheck.outside import noted
from app.gradcheck.reproduce import calls
from app.gradcheck.sample import Sample
from app.gradcheck.target import Target
from ops import Array
from pullback.gradcheck.number_comparison import Comparison
from pullback.gradcheck.numeric import Status
from pullback.gradcheck.verdict import Finding, Subject

NAME = "adjoint"
SIDES = "⟨dy, jvp(v)⟩", "⟨vjp(dy), v⟩"


def check(target: Target) -> Iterator[Finding]:
    """Compare both sides at each sample: number by number for an elementwise op, else as one sum."""
    subject = Subject(NAME, 1, dtype=target.widest)
    if not target.samples[0].claim.linear:
        yield Finding(subject, "skipped", "the gradient is declared not linear in the cotangent, so it has no jvp")
        return
    comparison = Comparison(subject, target.options.tolerances)
    for nonsingular in target.nonsingular:
        sample = nonsingular
        if target.last != "products":
            sample = nonsingular.up_to("slots")
            try:
                _ = sample.values
            except OpFailed as error:
                yield Finding(subject, "skipped", f"TensorFlow has no jvp here: {error.detail}")
                return
        _compare(target, sample, comparison)
    yield comparison.finding(*SIDES)
    special = Comparison(subject, target.options.tolerances)
    for sample in target.special_samples if target.last == "products" else ():
        target.checkpoint()
        if sample.is_computable:
            _compare(target, sample, special)
    if special.wrong:
        yield from noted(target, [special.finding(*SIDES)])


def _compare(target: Target, sample: Sample, comparison: Comparison) -> None:
    back, back_bar, size = _inner_product(target, sample, "gradients", sample.vectors)
    forth, forth_bar, other = _inner_product(target, sample, "slots", sample.cotangents)
    # Check finite judges derivatives that are not finite.
    status = np.where(np.isfinite(back) & np.isfinite(forth), Status.OK, Status.NOT_FINITE)
    some = calls(sample, ("slots", next(iter(sample.cotangents))), times=sample.cotangents)
    bar, scale = back_bar + forth_bar, size + other
    comparison.add(forth, back, bar, status=status, scale=scale, index=sample.total_index, calls=some)


def _inner_product(target: Target, sample: Sample, what: str, directions: Arrays) -> tuple[Array, Array, Array]:
    """Return the inner product of a gradient and its directions, its rounding error bound and the size of its terms."""
    products = {name: value * directions[name] for name, value in sample.of_kind(what).items()}
    bounds, scales = (
        sample.total({name: sizes[name] * np.abs(d) for name, d in directions.items()})
        for sizes in (sample.error_bounds(what, target.widest), sample.scales(what))
    )
    return sample.total(products), bounds, scales
