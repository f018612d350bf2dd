"""Second order, x and dy as independent leaves: what arrives at them when a random ddx arrives at dx.

At x: the numeric derivative of the op's own vjp (never of forward twice), or what the second claim says. At dy: always
the numeric derivative of the op's own vjp. Where both claims are derivatives also Σ c y²/2, where dy depends on x.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from app.autodiff.derivatives import composite
from app.gradcheck.checks.derivative import troubles
from app.gradcheck.claims import all_outputs, named_slots, primals
from app.gradcheck.comparison import Differentiated, Gradient, compare, compare_with_formula, row_by_row
from app.gradcheck.numeric import Trouble
from app.gradcheck.rows import Rows
from app.gradcheck.sample import Sample
from app.gradcheck.target import Target
from app.gradcheck.verdict import Comparison, Finding, Place
from ops import Array, Derivative, Formula, Surrogate

NAME = "second"
AGAINST = {
    Derivative: "the numeric derivative of its own vjp",
    Surrogate: "the numeric derivative of its second surrogate",
    Formula: "the declared second formula",
}


def check(target: Target) -> Iterator[Finding]:
    """Check the x slots, the dy slots and the composite."""
    first, about = target.samples[0], Place(NAME, 2, dtype=target.widest)
    inputs = {name: Comparison(replace(about, input=name)) for name in first.vectors}
    outputs = {name: Comparison(replace(about, output=name)) for name in first.cotangents}
    squares = {name: Comparison(replace(about, input=name)) for name in first.vectors if _is_honest(first)}
    for sample in target.smooth:
        _x_slots(target, sample, inputs)
        _dy_slots(target, sample, outputs)
        if squares:
            _composite(target, sample, squares)
    for name, comparison in inputs.items():
        yield comparison.finding(f"d⟨vjp, v⟩/d{name}", AGAINST[type(first.claim.second)])
    for name, comparison in outputs.items():
        yield comparison.finding(f"d⟨vjp, v⟩/dd{name}", AGAINST[Derivative])
    for name, comparison in squares.items():
        yield comparison.finding(f"the second derivative of Σ c y²/2 in {name}", "the numeric derivative of its first")


def _is_honest(sample: Sample) -> bool:
    claims = (sample.claim.first, sample.claim.second)
    return all(isinstance(claim, Derivative) for claim in claims) and sample.claim.linear


def _gradient(target: Target, sample: Sample, what: str, comparisons: Mapping[str, Comparison]) -> Gradient:
    whole = target.whole(sample)
    parts = {name: whole.values[what, name] for name in comparisons}
    return Gradient(parts, {name: whole.bound((what, name), target.widest) for name in comparisons}, comparisons)


def _x_slots(target: Target, sample: Sample, comparisons: Mapping[str, Comparison]) -> None:
    gradient, claim, whole = (
        _gradient(target, sample, "products", comparisons),
        sample.claim.second,
        target.whole(sample),
    )
    if isinstance(claim, Formula):
        vectors = [whole.vectors.get(name, 0 * x) for name, x in whole.point.inputs.items()]
        dys = all_outputs(whole, whole.cotangents)
        compare_with_formula(
            target, whole, gradient, lambda xs: named_slots(whole, claim.vjp(primals(whole, xs), dys, vectors))
        )
    else:
        compare(target, sample, gradient, lambda near: _differentiated(target, near))


def _differentiated(target: Target, sample: Sample) -> Differentiated:
    """Return the op's own vjp at the sample's cotangents as a function of x, or the second surrogate."""
    claim, at = sample.claim.second, primals(sample, {})
    rows, dys = Rows(sample.point, target.checkpoint), all_outputs(sample, sample.cotangents)

    def surrogate(inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        assert isinstance(claim, Surrogate)
        return named_slots(sample, claim.of(primals(sample, inputs), dys, at))

    def own(moved: Mapping[str, Array]) -> Mapping[str, Array]:
        return rows.vjp(moved, _repeated(sample.cotangents, moved))

    function = row_by_row(sample, surrogate) if isinstance(claim, Surrogate) else own
    return Differentiated(function, {name: sample.point.inputs[name] for name in sample.vectors}, sample.vectors)


def _dy_slots(target: Target, sample: Sample, comparisons: Mapping[str, Comparison]) -> None:
    compare(target, sample, _gradient(target, sample, "slots", comparisons), lambda near: _of_cotangents(target, near))


def _of_cotangents(target: Target, sample: Sample) -> Differentiated:
    """Return the op's own vjp at the sample as a function of dy."""
    rows = Rows(sample.point, target.checkpoint)

    def own(moved: Mapping[str, Array]) -> Mapping[str, Array]:
        kept = {name: dy for name, dy in sample.cotangents.items() if name not in moved}
        cast = {name: dy.astype(sample.cotangents[name].dtype) for name, dy in moved.items()}
        return rows.vjp({}, {name: {**cast, **_repeated(kept, moved)}[name] for name in sample.cotangents})

    return Differentiated(own, sample.cotangents, sample.vectors)


def _composite(target: Target, sample: Sample, comparisons: Mapping[str, Comparison]) -> None:
    # At a kink of y a gradient is one of many, and its product with itself is nothing's derivative.
    doubts = troubles(target, sample)
    if not sample.is_elementwise and any((doubt != Trouble.NONE).any() for doubt in doubts.values()):
        return
    whole = target.whole(sample)
    found = composite(whole.point, whole.cotangents, whole.vectors)
    parts = {name: found["products", name] for name in comparisons}
    # What it is made of: H at dy = c y, and Jᵀ of c J v.
    size, slots = (
        sum(_largest(sample.values[what, name]) for name in sample.cotangents) for what in ("outputs", "slots")
    )
    bounds = {
        name: whole.bound(("products", name), target.widest) * (1 + 2 * size)
        + whole.bound(("gradients", name), target.widest) * (1 + 2 * slots)
        for name in comparisons
    }
    # Coordinates one by one are looked at in the slots.
    gradient = Gradient(parts, bounds, comparisons, doubts=doubts, single=False)
    compare(target, sample, gradient, lambda near: _of_squares(target, near))


def _largest(values: Array) -> float:
    """Return the size of the largest number that is one."""
    return float(np.abs(np.nan_to_num(np.asarray(values, np.float64), posinf=0, neginf=0)).max(initial=0))


def _of_squares(target: Target, sample: Sample) -> Differentiated:
    """Return the gradient of Σ c y²/2, that is the op's own vjp at dy = c y, as a function of x."""
    rows = Rows(sample.point, target.checkpoint)

    def own(moved: Mapping[str, Array]) -> Mapping[str, Array]:
        ys = rows.forward(moved)
        with np.errstate(invalid="ignore", over="ignore"):
            # Rows of a select sample come flat, as its cotangents are.
            dys = {name: (c * ys[name].reshape(-1, *c.shape)).astype(c.dtype) for name, c in sample.cotangents.items()}
        return rows.vjp(moved, dys)

    return Differentiated(own, {name: sample.point.inputs[name] for name in sample.vectors}, sample.vectors)


def _repeated(values: Mapping[str, Array], rows: Mapping[str, Array]) -> dict[str, Array]:
    count = len(next(iter(rows.values())))
    return {name: np.broadcast_to(value, (count, *value.shape)) for name, value in values.items()}
