"""Orders 3 and 4: each is the second order of a derived op, whose inputs are those of the op and the cotangents.

The vjp of an op is an op. The numeric derivative of its own vjp, which is the second order of the op, is the third
order of the op; and so is the fourth that of the vjp of the vjp.
"""

from collections.abc import Iterator
from dataclasses import replace

from app.autodiff.derivatives import output_shapes
from app.autodiff.derived import derive
from app.autodiff.point import Arrays
from app.gradcheck.checks.second import compare_dy_slots, compare_x_slots
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
        derived = _derived(target, sample, order - SECOND)
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


def _derived(target: Target, sample: Sample, times: int) -> Target:
    """Return a target at the point of a sample: the vjp of the op, derived so many times, at random cotangents."""
    rng, inputs, derived = target.rng(NAME), sample.point.inputs, target
    for _ in range(times):
        point = derived.bind(inputs, target.widest)
        op, shapes, dtypes = derive(derived.op, "vjp"), output_shapes(point), point.spec.outputs.dtypes
        seeds: Arrays = {
            leaf: draw(rng, shapes[name]).astype(DTYPES[dtypes[name]].numpy) for leaf, name in op.given.items()
        }
        inputs = {**inputs, **seeds}
        derived = replace(target, op=op, inputs=inputs)
    return derived
