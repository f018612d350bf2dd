"""Contract: the op's functions return what TensorFlow requires and the op declares.

That is the count, type, shape and dtype of outputs and gradients at both orders, eagerly and in a graph; a gradient for
every input that is declared differentiable, and none for the others.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from app.autodiff.derivatives import forward, vjp
from app.autodiff.evaluation import Evaluation, as_found
from app.errors import OpFailed, Overloaded
from app.gradcheck.sample import Sample
from app.gradcheck.target import Target
from app.gradcheck.verdict import Finding, Place
from app.runtime.modes import run
from app.runtime.op_errors import op_errors
from ops import FLOATS, Mode

NAME = "contract"
MODES: tuple[Mode, ...] = ("graph", "eager")


def check(target: Target) -> Iterator[Finding]:
    """Evaluate everything once in each mode and dtype, and report the errors that the service raises."""
    for mode in MODES:
        if mode in target.op.modes and (target.has_example or mode in target.modes):
            yield from (_finding(target, mode, dtype) for dtype in target.dtypes)
    for slot in target.op.inputs:
        if not slot.differentiable and target.op.dtype_of(slot, target.widest) in FLOATS:
            yield _undeclared_gradient(target, slot.name)


def _finding(target: Target, mode: Mode, dtype: str) -> Finding:
    place, count = Place(NAME, mode=mode, dtype=dtype), len(target.points)
    try:
        for subsample in target.subsamples:
            if (narrow := target.in_dtype(subsample, dtype)) is not None:
                _evaluate(narrow.in_mode(mode, target.device), max(target.options.orders))
    except Overloaded as error:
        return Finding(place, "skipped", error.detail)
    except OpFailed as error:
        slots = [entry.loc[-1] for entry in error.entries]
        inputs = [slot.name for slot in target.op.inputs if slot.name in slots]
        return Finding(replace(place, input=inputs[0] if inputs else None), "fail", error.detail, count)
    return Finding(place, "pass", "count, types, shapes and dtypes of outputs and gradients are as declared", count)


def _evaluate(sample: Sample, order: int) -> None:
    """Evaluate the requested orders; after a failure the first order alone, whose error is clearer."""
    if order == 1:
        _first_order(sample)
        return
    try:
        _ = sample.values
    except OpFailed:
        _first_order(sample)
        raise


def _first_order(sample: Sample) -> None:
    forward(sample.point).run()
    vjp(sample.point, tuple(sample.vectors), sample.cotangents, batched=False, outputs=False).run()


def _undeclared_gradient(target: Target, name: str) -> Finding:
    """Look for a nonzero gradient of an input that is declared not differentiable."""
    place, count = Place(NAME, 1, input=name, dtype=target.widest), len(target.points)
    if any(_has_gradient(sample, name) for sample in target.subsamples):
        return Finding(place, "fail", f"{name} is declared not differentiable, but has a gradient that is not 0", count)
    return Finding(place, "pass", f"{name} has no gradient, as declared", count)


def _has_gradient(sample: Sample, name: str) -> bool:
    evaluation = Evaluation(sample.point, "vjp", as_found, wrt=(name,), cotangents=sample.cotangents)
    try:
        with op_errors(sample.point.op.name):
            results = run(evaluation.program, "graph", evaluation.leaves, sample.point.spec.device)
    except OpFailed:
        # The service raises this for a missing gradient, as it should.
        return False
    dx = results.get(("gradients", name))
    return dx is not None and bool(np.any(dx))
