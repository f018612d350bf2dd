"""Second order: the gradients at x and dy, as independent leaves, for a random ddx at dx.

At x, the reference is the numeric derivative of the op's own vjp (never of forward twice), or the second claim. At dy,
it is always the numeric derivative of the op's own vjp. At special points, the gradients at x must lie between the
derivatives on both sides. If both claims are derivatives, Σ c y²/2 is checked too, where dy depends on x.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from app.autodiff.derivatives import composite
from app.autodiff.point import Arrays
from app.gradcheck import sweep
from app.gradcheck.checks.derivative import BESIDE, SPECIAL, is_on_cut, statuses
from app.gradcheck.claims import claim_function, claim_of, claim_rows
from app.gradcheck.comparison import Gradient, compare, compare_with_formula
from app.gradcheck.kinks import compare_one_sided
from app.gradcheck.objective import Objective
from app.gradcheck.outside import noted
from app.gradcheck.reproduce import calls
from app.gradcheck.rows import Rows
from app.gradcheck.sample import Sample
from app.gradcheck.target import Target
from ops import Array, Derivative, Formula, Surrogate
from pullback.gradcheck.number_comparison import Comparison
from pullback.gradcheck.numeric import Status
from pullback.gradcheck.verdict import Finding, Subject

NAME = "second"
AGAINST = {
    Derivative: "the numeric derivative of its own vjp",
    Surrogate: "the numeric derivative of its second surrogate",
    Formula: "the declared second formula",
}
NO_OPERATION = (
    "no operation returns this number; it is the sum of hvp at dy = c y, and of vjp at dy = c times the jvp of v"
)


def check(target: Target) -> Iterator[Finding]:
    """Check the x slots, the dy slots and the composite."""
    first, subject = target.samples[0], Subject(NAME, 2, dtype=target.widest)
    claims, tolerances = first.claim, target.options.tolerances
    is_smooth = isinstance(claims.first, Derivative) and isinstance(claims.second, Derivative) and claims.linear
    inputs, squares = (
        {name: Comparison(replace(subject, input=name), tolerances) for name in names}
        for names in (first.vectors, first.vectors if is_smooth else ())
    )
    outputs = {name: Comparison(replace(subject, output=name), tolerances) for name in first.cotangents}
    for subsample in target.nonsingular:
        compare_x_slots(target, subsample, inputs)
        compare_dy_slots(target, subsample, outputs)
        if squares:
            _composite(target, subsample, squares)
    for sample in (*target.balanced, *sweep.suspects(target, 2)):
        compare_x_slots(target, sample, inputs)
        compare_dy_slots(target, sample, outputs)
    for name, comparison in inputs.items():
        yield comparison.finding(f"d⟨vjp, v⟩/d{name}", AGAINST[type(claim_of(first, 2))])
    for name, comparison in outputs.items():
        yield comparison.finding(f"d⟨vjp, v⟩/dd{name}", AGAINST[Derivative])
    for name, comparison in squares.items():
        yield comparison.finding(f"the second derivative of Σ c y²/2 in {name}", "the numeric derivative of its first")
    if not any(comparison.wrong for comparison in (*inputs.values(), *outputs.values())):
        yield from _at_complex_numbers(target)
        yield from noted(target, _at_special_points(target))


def _at_complex_numbers(target: Target) -> Iterator[Finding]:
    """Check the slots where functions of complex numbers are special."""
    subject, tolerances = Subject(NAME, 2, dtype=target.widest), target.options.tolerances
    inputs = {name: Comparison(replace(subject, input=name), tolerances) for name in target.samples[0].vectors}
    outputs = {name: Comparison(replace(subject, output=name), tolerances) for name in target.samples[0].cotangents}
    for sample in target.complex_samples:
        target.checkpoint()
        compare_x_slots(target, sample, inputs)
        compare_dy_slots(target, sample, outputs)
        if is_on_cut(target, sample) and not isinstance(sample.claim.second, Formula):
            together = Comparison(subject, tolerances)
            compare_one_sided(target, sample, x_objective(target, sample), {**inputs, None: together}, kind="products")
    against = AGAINST[type(claim_of(target.samples[0], 2))]
    found = [comparison.finding(f"d⟨vjp, v⟩/d{name}", f"{against} {SPECIAL}") for name, comparison in inputs.items()]
    against = AGAINST[Derivative]
    found += [comparison.finding(f"d⟨vjp, v⟩/dd{name}", f"{against} {SPECIAL}") for name, comparison in outputs.items()]
    yield from (finding for finding in found if finding.verdict in ("fail", "pass"))


def _at_special_points(target: Target) -> Iterator[Finding]:
    """Check the gradients of the vjp at x where it may have a kink: there, any of its subgradients is right."""
    comparisons: dict[str | None, Comparison] = {
        name: Comparison(Subject(NAME, 2, input=name, dtype=target.widest), target.options.tolerances)
        for name in (*target.samples[0].vectors, None)
    }
    for sample in target.special_samples:
        target.checkpoint()
        if sample.is_computable and not isinstance(sample.claim.second, Formula):
            compare_one_sided(target, sample, x_objective(target, sample), comparisons, kind="products")
    for name, comparison in comparisons.items():
        if comparison.verdict in ("fail", "pass"):
            what = "the second order along equal numbers" if name is None else f"d⟨vjp, v⟩/d{name}"
            yield comparison.finding(what, f"the derivative of its own vjp {BESIDE}")


def _gradient(target: Target, subsample: Sample, what: str, comparisons: Mapping[str, Comparison]) -> Gradient:
    parts, bounds = subsample.of_kind(what), subsample.error_bounds(what, target.widest)
    return Gradient(
        parts,
        bounds,
        comparisons,
        calls=lambda name: calls(subsample, (what, name)),
        scales=subsample.scales(what),
    )


def compare_x_slots(target: Target, subsample: Sample, comparisons: Mapping[str, Comparison]) -> None:
    """Compare the gradients of the vjp at x with their claim, by input."""
    gradient = _gradient(target, subsample, "products", comparisons)
    if not subsample.is_elementwise:
        firsts = subsample.of_kind("gradients").items()
        terms = {name: np.abs(np.nan_to_num(dx * subsample.vectors[name])) for name, dx in firsts}
        gradient = replace(gradient, moved=sum(float(np.sum(each)) for each in terms.values()), terms=terms)
    if isinstance(subsample.claim.second, Formula):
        compare_with_formula(subsample, gradient, claim_function(subsample, 2))
    else:
        compare(target, subsample, gradient, x_objective(target, subsample))


def x_objective(target: Target, sample: Sample) -> Objective:
    """Return the op's own vjp at the sample's cotangents, or the second surrogate, as a function of x."""
    if isinstance(sample.claim.second, Surrogate):
        bounds = sample.error_bounds("gradients", target.widest)
        return Objective(claim_rows(sample, 2), sample.inputs, sample.vectors, bounds, target.widest)
    rows, dtype = Rows(sample.point, target.checkpoint, precise=sample.is_precise), sample.precise_dtype

    def vjp(inputs: Arrays) -> Arrays:
        return rows.vjp(inputs, _repeat(sample.cotangents, inputs))

    return Objective(vjp, sample.inputs, sample.vectors, sample.error_bounds("gradients", dtype), dtype)


def compare_dy_slots(target: Target, subsample: Sample, comparisons: Mapping[str, Comparison]) -> None:
    """Compare the gradients of the vjp at dy with its numeric derivative, by output."""
    gradient = _gradient(target, subsample, "slots", comparisons)
    compare(target, subsample, gradient, dy_objective(target, subsample))


def dy_objective(target: Target, sample: Sample) -> Objective:
    """Return the op's own vjp at the sample as a function of dy."""
    rows, dtype = Rows(sample.point, target.checkpoint, precise=sample.is_precise), sample.precise_dtype

    def vjp(moved: Arrays) -> Arrays:
        every = {**_repeat(sample.cotangents, moved), **moved}
        return rows.vjp({}, {name: every[name] for name in sample.cotangents})

    return Objective(vjp, sample.cotangents, sample.vectors, sample.error_bounds("gradients", dtype), dtype)


def _composite(target: Target, subsample: Sample, comparisons: Mapping[str, Comparison]) -> None:
    """Compare the second derivative of Σ c y²/2, H at dy = c y plus Jᵀ of c J v, with the derivative of its first."""
    # At a kink of y the gradient is one of many, and its product with itself is not a derivative.
    known = statuses(target, subsample)
    if not subsample.is_elementwise and any((status != Status.OK).any() for status in known.values()):
        return
    results = composite(subsample.point, subsample.cotangents, subsample.vectors).run()
    # The bounds are those at dy = c; here dy = c y, and c times the jvp of v. y rounds, too.
    size, slots = (sum(_sizes(subsample, what, name) for name in subsample.cotangents) for what in ("outputs", "slots"))
    of_outputs, of_gradients = (
        _error_of_outputs(subsample, target.widest),
        subsample.error_bounds("gradients", target.widest),
    )
    bounds = {
        name: 2 * size * bound
        + 2 * slots * of_gradients[name]
        + 2 * of_outputs * np.abs(subsample.values["products", name])
        for name, bound in subsample.error_bounds("products", target.widest).items()
    }
    products, gradients = subsample.scales("products"), subsample.scales("gradients")
    gradient = Gradient(
        {name: results["products", name] for name in comparisons},
        bounds,
        comparisons,
        scales={name: size * products[name] + slots * gradients[name] for name in comparisons},
        known_statuses=known,
        # The slots are checked coordinate by coordinate, so the composite need not be.
        by_coordinate=False,
        calls=lambda name: calls(subsample, ("products", name), explanation=NO_OPERATION),
    )
    compare(target, subsample, gradient, _composite_objective(target, subsample))


def _sizes(sample: Sample, what: str, name: str) -> Array:
    """Return the sizes of the finite numbers of a value: the largest, unless the op is elementwise."""
    sizes = np.abs(np.nan_to_num(np.asarray(sample.values[what, name], np.float64), posinf=0, neginf=0))
    return sizes if sample.is_elementwise else np.asarray(sizes.max(initial=0.0))


def _error_of_outputs(sample: Sample, dtype: str) -> Array:
    """Return the largest rounding error of the outputs in a dtype: number by number for an elementwise op."""
    bounds = [sample.error_bound(("outputs", name), dtype) for name in sample.cotangents]
    return np.max(bounds, axis=0) if sample.is_elementwise else np.max([np.max(b, initial=0.0) for b in bounds])


def _composite_objective(target: Target, sample: Sample) -> Objective:
    """Return the gradient of Σ c y²/2, which is the op's own vjp at dy = c y, as a function of x."""
    rows, dtype = Rows(sample.point, target.checkpoint, precise=sample.is_precise), sample.precise_dtype

    def vjp(moved: Arrays) -> Arrays:
        ys = rows.forward(moved)
        with np.errstate(invalid="ignore", over="ignore"):
            # The outputs of a subsample have its flat shape, as its cotangents do.
            dys = {name: c * ys[name].reshape(-1, *c.shape) for name, c in sample.cotangents.items()}
        return rows.vjp(moved, dys)

    size = 2 * np.max([_sizes(sample, "outputs", name) for name in sample.cotangents], axis=0)
    of_outputs = 2 * _error_of_outputs(sample, dtype)
    bounds = {
        name: size * bound + of_outputs * np.abs(sample.values["gradients", name])
        for name, bound in sample.error_bounds("gradients", dtype).items()
    }
    return Objective(vjp, sample.inputs, sample.vectors, bounds, dtype)


def _repeat(values: Arrays, rows: Arrays) -> dict[str, Array]:
    count = len(next(iter(rows.values())))
    return {name: np.broadcast_to(value, (count, *value.shape)) for name, value in values.items()}
