"""First order: dx at a random dy is the derivative that the claim names.

That is the numeric derivative of forward or of the surrogate, with its error bar, or the value of the formula.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from app.autodiff.derivatives import gradient
from app.autodiff.point import Arrays
from app.gradcheck import sweep
from app.gradcheck.claims import all_cotangents, named_outputs, named_slots, primals
from app.gradcheck.comparison import Gradient, compare, compare_with_formula, row_by_row
from app.gradcheck.kinks import compare_between_sides
from app.gradcheck.numeric import Trouble
from app.gradcheck.objective import Objective
from app.gradcheck.reproduce import calls
from app.gradcheck.rows import Rows
from app.gradcheck.sample import Sample
from app.gradcheck.target import NUMBERS_OF_LARGE, Target
from app.gradcheck.verdict import Comparison, Finding, Place
from ops import Array, Derivative, Formula, Surrogate

NAME = "derivative"
AGAINST = {
    Derivative: "the numeric derivative of forward",
    Surrogate: "the numeric derivative of its surrogate",
    Formula: "the declared formula",
}


def check(target: Target) -> Iterator[Finding]:
    """Check each input for each output in turn, with the cotangents of the other outputs 0."""
    suspects, has_failed = sweep.suspects(target, 1), False
    for output in target.samples[0].cotangents:
        comparisons = {
            name: Comparison(Place(NAME, 1, output, name, dtype=target.widest)) for name in target.samples[0].vectors
        }
        for subsample in (*target.smooth, *suspects):
            _compare(target, subsample, output, comparisons)
        against = AGAINST[type(target.samples[0].claim.first)]
        yield from (comparison.finding(f"d{name}", against) for name, comparison in comparisons.items())
        has_failed = has_failed or any(comparison.verdict == "fail" for comparison in comparisons.values())
    if not has_failed:
        yield from _special(target)


def _special(target: Target) -> Iterator[Finding]:
    """Check the gradient at special places, or at a given point that has a kink: there, any subgradient is right."""
    inputs = target.samples[0].vectors
    comparisons: dict[str | None, Comparison] = {
        name: Comparison(Place(NAME, 1, input=name, dtype=target.widest)) for name in (*inputs, None)
    }
    is_given = target.inputs is not None
    for sample in filter(_has_small_kinks, target.smooth) if is_given else target.special:
        if isinstance(sample.claim.first, Formula):
            return
        target.checkpoint()
        if not sample.is_computable:
            continue
        gradients = {name: np.asarray(sample.values["gradients", name], np.float64) for name in sample.vectors}
        weighted = objective(target, sample, sample.cotangents)
        compare_between_sides(target, sample, gradients, weighted, comparisons)
    for name, comparison in comparisons.items():
        # At a given point, a gradient that lies between the two sides of a kink proves nothing.
        if comparison.verdict == "fail" or (comparison.verdict == "pass" and not is_given):
            what = "the gradient along equal numbers" if name is None else f"d{name}"
            yield comparison.finding(what, "the derivative on both sides of 0, a tie, a kink or an end of the domain")


def _has_small_kinks(sample: Sample) -> bool:
    size = sum(x.size for x in sample.point.inputs.values())
    return size <= NUMBERS_OF_LARGE and any((found == Trouble.KINK).any() for found in sample.troubles.values())


def troubles(target: Target, subsample: Sample) -> dict[str, Array]:
    """Return where forward has no derivative, such as kinks and jumps, by input and coordinate."""
    if not subsample.troubles:
        for output in subsample.cotangents:
            _compare(target, subsample, output, {name: Comparison(Place(NAME)) for name in subsample.vectors})
    return subsample.troubles


def _compare(target: Target, subsample: Sample, output: str, comparisons: Mapping[str, Comparison]) -> None:
    bounds = {name: subsample.error_bound(("gradients", name), target.widest) for name in comparisons}
    claim, some = subsample.claim.first, {output: subsample.cotangents[output]}
    gradient = Gradient(
        _gradients(subsample, output),
        bounds,
        comparisons,
        calls=lambda name: calls(subsample, ("gradients", name), cotangents=some),
    )
    if isinstance(claim, Formula):
        dys = {name: dy if name == output else 0 * dy for name, dy in subsample.cotangents.items()}
        compare_with_formula(
            target,
            subsample,
            gradient,
            lambda xs: named_slots(subsample, claim.vjp(primals(subsample, xs), all_cotangents(subsample, dys))),
        )
    else:
        compare(
            target, subsample, gradient, lambda sample: objective(target, sample, {output: sample.cotangents[output]})
        )
    for name, trouble in gradient.troubles.items():
        known = subsample.troubles.get(name, trouble)
        subsample.troubles[name] = np.where(trouble == Trouble.NONE, known, trouble)


def objective(target: Target, sample: Sample, weights: Arrays) -> Objective:
    """Return forward or the surrogate, with these weights of its outputs."""
    claim, at = sample.claim.first, primals(sample, {})

    def surrogate(inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        assert isinstance(claim, Surrogate)
        return named_outputs(sample, claim.of(primals(sample, inputs), at))

    rows = Rows(sample.point, target.checkpoint)
    function = row_by_row(sample, surrogate) if isinstance(claim, Surrogate) else rows.forward
    leaves = {name: sample.point.inputs[name] for name in sample.vectors}
    bounds = {output: sample.error_bound(("outputs", output), target.widest) for output in weights}
    return Objective(function, leaves, weights, bounds)


def _gradients(sample: Sample, output: str) -> dict[str, Array]:
    if list(sample.cotangents) == [output]:
        return {name: sample.values["gradients", name] for name in sample.vectors}
    return gradient(sample.point, {output: sample.cotangents[output]}).run()
