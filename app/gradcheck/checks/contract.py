"""Contract: the op's functions return what TensorFlow requires and the op declares.

That is the count, type, shape and dtype of outputs and gradients at both orders, eagerly and in a graph; a gradient for
every input that is declared differentiable, and none for the others.
"""

from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from dataclasses import replace

import numpy as np

from app.autodiff.derivatives import forward, gradient, values_of
from app.autodiff.draws import draw_from_domains, shape_of
from app.autodiff.evaluation import Evaluation, as_found
from app.autodiff.transforms import Transform
from app.errors import OpFailed, Overloaded, PullbackError, Unprocessable
from app.gradcheck import points
from app.gradcheck.reference import has_reference
from app.gradcheck.rows import kernels
from app.gradcheck.sample import Sample
from app.gradcheck.target import Target
from app.runtime.calculus import without_gradient
from app.runtime.modes import run
from app.runtime.op_errors import NO_GRADIENT, RECOMPUTE, op_errors
from ops import BOOL, FLOATS, Example, Input, Mode, Op, rules_of
from pullback.gradcheck.verdict import Finding, Subject

NAME = "contract"
MODES: tuple[Mode, ...] = ("graph", "eager")
ORDERS = ("forward", "the gradient", "the second order")
CURE = (
    "if TensorFlow has no second order for it, write claim=lambda attrs: Claim(second=None): the first order is checked"
)
# Domains that indices and labels often have, from the first number to the one after the last.
USUAL = ((0.0, 3.0), (0.0, 1.0))


def check(target: Target) -> Iterator[Finding]:
    """Evaluate every shape once in each mode and dtype, and report the errors that the service raises."""
    yield from narrowed(target)
    sample = target.samples[0]
    try:
        _ = sample.is_singular
    except OpFailed as error:
        yield Finding(Subject(NAME, 1, dtype=target.widest), "fail", error.located, 1)
        return
    for mode in MODES:
        if mode in target.op.modes and (target.has_example or mode in target.modes):
            yield from (_finding(target, mode, dtype) for dtype in target.dtypes)
    for slot in target.op.inputs:
        if not slot.differentiable and target.op.dtype_of(slot, target.widest) in FLOATS:
            subject, count = Subject(NAME, 1, input=slot.name, dtype=target.widest), len(target.points)
            if any(_has_gradient(sample, slot.name) for sample in target.subsamples):
                sentence = f"{slot.name} is declared not differentiable, but has a gradient that is not 0"
                yield Finding(subject, "fail", sentence, count)
            else:
                yield Finding(subject, "pass", f"{slot.name} has no gradient, as declared", count)


def _finding(target: Target, mode: Mode, dtype: str) -> Finding:
    subject, count = Subject(NAME, mode=mode, dtype=dtype), len(target.points)
    needs_all, seen = (mode, dtype) == (MODES[0], target.widest), set[Hashable]()
    try:
        for subsample in target.subsamples:
            # What functions return depends on shapes, modes and dtypes; an eager evaluation of a loop takes seconds.
            shapes = tuple(x.shape for x in subsample.point.inputs.values())
            if shapes not in seen and (narrow := target.in_dtype(subsample, dtype)) is not None:
                seen |= set() if needs_all else {shapes}
                sample = narrow.in_mode(mode, target.options.device)
                if found := failure(sample, max(target.orders, default=1)):
                    order, error = found
                    slots = [entry.loc[-1] for entry in error.entries]
                    name = next((slot.name for slot in target.op.inputs if slot.name in slots), None)
                    sentence = error.located.replace(" failed: ", f" failed in {ORDERS[order]}: ", 1)
                    sentence += _others_without(sample, sentence) if order == 1 else ""
                    if order > 1 and not _has_own_second(target.op) and RECOMPUTE not in sentence:
                        sentence = f"{sentence}; {CURE}"
                    return Finding(replace(subject, order=order, input=name), "fail", sentence, count)
    except Overloaded as error:
        return Finding(subject, "skipped", error.detail)
    return Finding(subject, "pass", "count, types, shapes and dtypes of outputs and gradients are as declared", count)


def failure(sample: Sample, order: int) -> tuple[int, OpFailed] | None:
    """Return the error of the lowest order that fails, which is the clearest, and the order; 0: the values."""
    runs: tuple[Callable[[], object], ...] = (
        forward(sample.point).run,
        gradient(sample.point, sample.cotangents).run,
        lambda: sample.values,
    )
    if order > 1:
        with suppress(OpFailed):
            _ = sample.values
            return None
    for i, run_order in enumerate(runs[: order + 1]):
        try:
            run_order()
        except OpFailed as error:
            return i, error
    return None


def _others_without(sample: Sample, sentence: str) -> str:
    """Return which other operations of forward have no gradient, if that of one, which a sentence names, is missing."""
    if NO_GRADIENT not in sentence:
        return ""
    others = [kind for kind in without_gradient(kernels(sample.point)) if f"{NO_GRADIENT} {kind}:" not in sentence]
    return f"; nor has it one of {', '.join(others)}" if others else ""


def _has_own_second(op: Op) -> bool:
    """Return whether the author has written the second order."""
    rules = rules_of(op.function)
    return rules is not None and rules.vjp_vjp is not rules.vjp


def _has_gradient(sample: Sample, name: str) -> bool:
    transforms = (Transform("vjp", (name,), tuple(sample.cotangents)),)
    evaluation = Evaluation(sample.point, transforms, as_found, (sample.cotangents,))
    try:
        with op_errors(sample.point.op.name):
            results = run(evaluation.program, "graph", evaluation.leaves, sample.point.spec.device)
    except OpFailed:
        # The service raises this for a missing gradient, as it should.
        return False
    dx = results[1, name]
    return dx is not None and bool(np.any(dx))


# Labels and indices have a range that only the author knows. Drawn from the default domain, they would be rejected,
# which says nothing about the gradient.
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
            yield _without_domain(target, slot, why)


def _without_domain(target: Target, slot: Input, why: str) -> Finding:
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
