"""Orders 3 and 4: each is the second order of a derived op, whose inputs are those of the op and the cotangents.

The vjp of an op is an op. The numeric derivative of its own vjp, which is the second order of the op, is the third
order of the op; and so is the fourth that of the vjp of the vjp. At special points, each must lie between the numeric
derivatives on both sides.
"""

from collections.abc import Iterator
from dataclasses import replace

from app.autodiff.derivatives import output_shapes
from app.autodiff.derived import derive
from app.autodiff.point import Arrays
from app.gradcheck.checks.derivative import BESIDE
from app.gradcheck.checks.second import compare_dy_slots, compare_x_slots, x_objective
from app.gradcheck.kinks import compare_one_sided
from app.gradcheck.outside import noted
from app.gradcheck.sample import Sample, draw
from app.gradcheck.target import Target
from app.tensors.dtypes import DTYPES
from pullback.gradcheck.number_comparison import Comparison
from pullback.gradcheck.verdict import Finding, Subject

NAME = "higher"
SECOND = 2


def check(target: Target) -> Iterator[Finding]:
    """Check the requested orders above the second, in the widest dtype and mode graph."""
    for order in target.options.orders:
        if order > SECOND:
            yield from _findings(target, order)


def _findings(target: Target, order: int) -> Iterator[Finding]:
    subject = Subject(NAME, order, dtype=target.widest)
    inputs, outputs = dict[str, Comparison](), dict[str, Comparison]()
    for sample in target.nonsingular:
        derived = derived_at(target, sample, order)
        own = derived.samples[0]
        for name in own.vectors:
            inputs.setdefault(name, Comparison(replace(subject, input=name), target.options.tolerances))
        for name in own.cotangents:
            outputs.setdefault(name, Comparison(replace(subject, output=name), target.options.tolerances))
        compare_x_slots(derived, own, inputs)
        compare_dy_slots(derived, own, outputs)
    what, against = f"the derivative of order {order} in", f"the numeric derivative of order {order - 1}"
    yield from (comparison.finding(f"{what} {name}", against) for name, comparison in inputs.items())
    yield from (comparison.finding(f"{what} the cotangent of {name}", against) for name, comparison in outputs.items())
    if not any(comparison.wrong for comparison in inputs.values()):
        yield from noted(target, _at_special_points(target, order))


def _at_special_points(target: Target, order: int) -> Iterator[Finding]:
    comparisons = dict[str | None, Comparison]()
    for sample in target.special_samples:
        target.checkpoint()
        derived = derived_at(target, sample, order)
        own = derived.samples[0]
        for name in (*own.vectors, None):
            subject = Subject(NAME, order, input=name, dtype=target.widest)
            comparisons.setdefault(name, Comparison(subject, target.options.tolerances))
        if own.is_computable:
            compare_one_sided(derived, own, x_objective(derived, own), comparisons, kind="products")
    for name, comparison in comparisons.items():
        if comparison.verdict in ("fail", "pass"):
            where = "along equal numbers" if name is None else f"in {name}"
            yield comparison.finding(
                f"the derivative of order {order} {where}", f"the derivative of order {order - 1} {BESIDE}"
            )


def derived_at(target: Target, sample: Sample, order: int) -> Target:
    """Return a target at the point of a sample whose second order is an order of the op, at random cotangents."""
    rng, inputs, derived = target.rng(NAME), sample.point.inputs, target
    for _ in range(order - SECOND):
        point = derived.bind(inputs, target.widest)
        op, shapes, dtypes = derive(derived.op, "vjp"), output_shapes(point), point.spec.outputs.dtypes
        seeds: Arrays = {
            leaf: draw(rng, shapes[name]).astype(DTYPES[dtypes[name]].numpy) for leaf, name in op.given.items()
        }
        inputs = {**inputs, **seeds}
        derived = replace(target, op=op, inputs=inputs)
    return derived
