"""Adjoint: ⟨dy, jvp(v)⟩ = ⟨vjp(dy), v⟩, where the jvp is the derivative of the vjp in dy."""

from collections.abc import Iterator

import numpy as np

from app.errors import OpFailed
from app.gradcheck.outside import noted
from app.gradcheck.reproduce import calls
from app.gradcheck.sample import Sample
from app.gradcheck.target import Target
from pullback.gradcheck.identities import Inner, compare_inner, inner
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
    sides, size = dict[str, Inner](), np.zeros(())
    for kind, directions in (("slots", sample.cotangents), ("gradients", sample.vectors)):
        scales = sample.scales(kind)
        size = size + sample.total({name: scales[name] * np.abs(d) for name, d in directions.items()})
        bounds = sample.error_bounds(kind, target.widest)
        sides[kind] = inner(sample.total, sample.of_kind(kind), directions, bounds)
    # Check finite judges derivatives that are not finite.
    is_finite = np.logical_and.reduce([np.isfinite(side.value) for side in sides.values()])
    status = np.where(is_finite, Status.OK, Status.NOT_FINITE)
    some = calls(sample, ("slots", next(iter(sample.cotangents))), times=sample.cotangents)
    where = {"status": status, "scale": size, "index": sample.total_index, "calls": some}
    compare_inner(comparison, sides["slots"], sides["gradients"], **where)
