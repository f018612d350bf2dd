"""First order: dx at a random dy is the derivative that the claim names.

That is the numeric derivative of forward or of the surrogate, with its error bar, or the value of the formula.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from app.autodiff.derivatives import gradient
from app.autodiff.point import Arrays
from app.gradcheck import sweep
from app.gradcheck.claims import claim_function, claim_rows
from app.gradcheck.comparison import Gradient, compare, compare_with_formula
from app.gradcheck.kinks import compare_one_sided
from app.gradcheck.objective import Objective
from app.gradcheck.outside import noted
from app.gradcheck.reproduce import calls
from app.gradcheck.rows import Rows
from app.gradcheck.sample import Sample
from app.gradcheck.target import NUMBERS_OF_LARGE, Target
from ops import Array, Derivative, Formula, Surrogate
from pullback.gradcheck.number_comparison import Comparison
from pullback.gradcheck.numeric import Status
from pullback.gradcheck.verdict import Finding, Subject

NAME = "derivative"
AGAINST = {
    Derivative: "the numeric derivative of forward",
    Surrogate: "the numeric derivative of its surrogate",
    Formula: "the declared formula",
}

SPECIAL = "at complex numbers on the axes, beside them, of equal sizes and of equal angles"
BESIDE = "on both sides of 0, a tie, a kink or an end of the domain"


def check(target: Target) -> Iterator[Finding]:
    """Check each input for each output in turn, with the cotangents of the other outputs 0."""
    suspects, has_failed = sweep.suspects(target, 1), False
    for output in target.samples[0].cotangents:
        comparisons = {
            name: Comparison(Subject(NAME, 1, output, name, dtype=target.widest), target.options.tolerances)
            for name in target.samples[0].vectors
        }
        for subsample in (*target.nonsingular, *target.balanced, *suspects):
            compare_output(target, subsample, output, comparisons)
        against = AGAINST[type(target.samples[0].claim.first)]
        yield from (comparison.finding(f"d{name}", against) for name, comparison in comparisons.items())
        has_failed = has_failed or any(comparison.verdict == "fail" for comparison in comparisons.values())
    if not has_failed:
        yield from _check_complex(target)
        yield from _check_special(target)


def _check_complex(target: Target) -> Iterator[Finding]:
    """Check where functions of complex numbers are special; where they have no derivative there, nothing is missing."""
    comparisons = {
        name: Comparison(Subject(NAME, 1, input=name, dtype=target.widest), target.options.tolerances)
        for name in target.samples[0].vectors
    }
    for sample in target.complex_samples:
        target.checkpoint()
        for output in sample.cotangents:
            compare_output(target, sample, output, comparisons)
        if is_on_cut(target, sample) and not isinstance(sample.claim.first, Formula):
            every = {**comparisons, None: Comparison(Subject(NAME, 1, dtype=target.widest), target.options.tolerances)}
            compare_one_sided(target, sample, objective(target, sample, sample.cotangents), every)
    against = f"{AGAINST[type(target.samples[0].claim.first)]} {SPECIAL}"
    for name, comparison in comparisons.items():
        if comparison.verdict in ("fail", "pass"):
            yield comparison.finding(f"d{name}", against)


def _check_special(target: Target) -> Iterator[Finding]:
    """Check the gradient at special points, or at a given point that has a kink: there, any subgradient is right."""
    comparisons: dict[str | None, Comparison] = {
        name: Comparison(Subject(NAME, 1, input=name, dtype=target.widest), target.options.tolerances)
        for name in (*target.samples[0].vectors, None)
    }
    is_given = target.inputs is not None
    for sample in filter(_has_small_kinks, target.nonsingular) if is_given else target.special_samples:
        if isinstance(sample.claim.first, Formula):
            return
        target.checkpoint()
        if not sample.is_computable:
            continue
        compare_one_sided(target, sample, objective(target, sample, sample.cotangents), comparisons)
    for name, comparison in comparisons.items():
        # At a given point, a gradient that lies between the two sides of a kink proves nothing.
        if comparison.verdict == "fail" or (comparison.verdict == "pass" and not is_given):
            what = "the gradient along equal numbers" if name is None else f"d{name}"
            against = f"the derivative {BESIDE}"
            found = [comparison.finding(what, against)]
            yield from found if is_given else noted(target, found)


def _has_small_kinks(sample: Sample) -> bool:
    size = sum(x.size for x in sample.point.inputs.values())
    return size <= NUMBERS_OF_LARGE and any((found == Status.KINK).any() for found in sample.statuses.values())


def is_on_cut(target: Target, sample: Sample) -> bool:
    """Return whether forward jumps beside a sample: then its derivatives are those of one side."""
    return any((found == Status.JUMP).any() for found in statuses(target, sample).values())


def statuses(target: Target, subsample: Sample) -> dict[str, Array]:
    """Return where forward has no derivative, such as kinks and jumps, by input and coordinate."""
    if not subsample.statuses:
        for output in subsample.cotangents:
            compare_output(
                target,
                subsample,
                output,
                {name: Comparison(Subject(NAME, dtype=target.widest)) for name in subsample.vectors},
            )
    return subsample.statuses


def compare_output(target: Target, subsample: Sample, output: str, comparisons: Mapping[str, Comparison]) -> None:
    """Compare dx at the cotangent of one output with its claim, by input."""
    dy = {output: subsample.cotangents[output]}
    is_only = len(subsample.cotangents) == 1
    terms = np.abs(np.nan_to_num(subsample.values["outputs", output] * subsample.cotangents[output]))
    under_test = Gradient(
        subsample.of_kind("gradients") if is_only else gradient(subsample.point, dy).run(),
        subsample.error_bounds("gradients", target.widest),
        comparisons,
        calls=lambda name: calls(subsample, ("gradients", name), cotangents=dy),
        scales=subsample.scales("gradients"),
        moved=None if subsample.is_elementwise else float(np.sum(terms)),
    )
    if isinstance(subsample.claim.first, Formula):
        compare_with_formula(subsample, under_test, claim_function(subsample, 1, dy))
    else:
        compare(target, subsample, under_test, objective(target, subsample, dy))
    for name, status in under_test.statuses.items():
        known = subsample.statuses.get(name, status)
        subsample.statuses[name] = np.where(status == Status.OK, known, status)


def objective(target: Target, sample: Sample, weights: Arrays) -> Objective:
    """Return forward or the surrogate, with these weights of its outputs."""
    if isinstance(sample.claim.first, Surrogate):
        bounds = sample.error_bounds("outputs", target.widest)
        return Objective(claim_rows(sample, 1), sample.inputs, weights, bounds, target.widest)
    rows, dtype = Rows(sample.point, target.checkpoint, precise=sample.is_precise), sample.precise_dtype
    return Objective(rows.forward, sample.inputs, weights, sample.error_bounds("outputs", dtype), dtype)
