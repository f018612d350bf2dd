"""Integers without a domain: where an op rejects the integers drawn, the checks keep to the range of its examples.

Labels and indices have a range that only the author knows. Drawn from the default domain, they would be rejected, which
says nothing about the gradient.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from app.autodiff.derivatives import values_of
from app.autodiff.draws import draw_from_domains, shape_of
from app.errors import OpFailed, PullbackError, Unprocessable
from app.gradcheck import points
from app.gradcheck.reference import has_reference
from app.gradcheck.target import Target
from ops import BOOL, FLOATS, Example, Input, Op
from pullback.gradcheck.verdict import Finding, Subject

# Domains that indices and labels often have, from the first number to the one after the last.
USUAL = ((0.0, 3.0), (0.0, 1.0))


def narrowed(target: Target) -> Iterator[Finding]:
    """Restrict a target to integers that its op accepts, and yield what its author should declare for each input.

    If no domain can be found, the target is restricted to an example. Nothing changes if the op accepts the integers of
    the default domain, or fails at its examples too.
    """
    slots = _integers(target.op) if target.inputs is None else []
    if not slots or (why := _rejection(target, target.op)) is None:
        return
    examples = [each for each in target.op.examples if dict(each.attrs) == dict(target.attrs)]
    if any(_fails(target, example) for example in examples):
        return
    domains = {slot.name: _of_examples(target.op, slot) for slot in slots}
    for usual in (None, *USUAL):
        op = _declaring(target.op, {name: usual or domain for name, domain in domains.items()})
        if _rejection(target, op) is None:
            target.replace_op(op)
            break
    else:
        if not examples:
            return
        target.restrict_to(examples[0].inputs)
    for slot in target.op.inputs:
        if slot.name in domains:
            yield _finding(target, slot, why)


def _finding(target: Target, slot: Input, why: str) -> Finding:
    low, high = slot.domain
    where = "at an example" if target.inputs is not None else f"with integers from {low:g} to {high - 1:g}"
    cure = f'declare Input("{slot.name}", ..., domain=(first, last + 1)), or a sample of the op'
    sentence = f"{slot.name} has no domain, and the op rejects integers from -3 to 2 ({why}); checked {where}: {cure}"
    return Finding(Subject("contract", 0, input=slot.name, dtype=target.widest), "inconclusive", sentence)


def _integers(op: Op) -> list[Input]:
    """Return the inputs of integers without a domain, if the op does not draw its points itself."""
    if op.sample is not None:
        return []
    return [slot for slot in op.inputs if slot.dtypes[0] not in (*FLOATS, BOOL) and not slot.has_domain]


def _of_examples(op: Op, slot: Input) -> tuple[float, float]:
    """Return the domain from the least integer of the examples to the one after the largest."""
    numbers = np.concatenate([np.ravel(np.asarray(each.inputs[slot.name], np.float64)) for each in op.examples])
    return (float(numbers.min(initial=0.0)), float(numbers.max(initial=0.0)) + 1)


def _declaring(op: Op, domains: dict[str, tuple[float, float]]) -> Op:
    slots = (replace(slot, domain=domains[slot.name]) if slot.name in domains else slot for slot in op.inputs)
    return replace(op, inputs=tuple(slots))


def _rejection(target: Target, op: Op) -> str | None:
    """Return why an op rejects the least or the largest integers of its inputs' domains, ``None`` if it does not."""
    rng, names = target.rng("integers"), [slot.name for slot in _integers(target.op)]
    dimensions = points.SCALAR if target.batching == "elementwise" else points.THREES
    for end in ("least", "largest"):
        inputs = draw_from_domains(op, target.widest, rng, dimensions)
        for slot in op.inputs:
            if slot.name in names:
                low, high = slot.domain
                number = low if end == "least" else high - 1
                inputs[slot.name] = np.full(shape_of(slot, dimensions), number)
        try:
            point = target.bind(inputs, target.widest)
            values_of(point).run()
        except (OpFailed, Unprocessable) as error:
            return error.detail
        if not has_reference(point):
            return "its reference raises"
    return None


def _fails(target: Target, example: Example) -> bool:
    try:
        return not has_reference(point := target.bind(example.inputs, target.widest)) or not values_of(point).run()
    except PullbackError:
        return True
