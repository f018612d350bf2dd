"""The contract: what the op's functions return is what TensorFlow and the op's page say they return.

Count, type, shape and dtype of outputs and gradients at both orders, eagerly and in a graph; a gradient for every input
that is declared differentiable, and none for the others.
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
    """Ask for everything once in each dtype, and let the service's own refusals speak."""
    for mode in MODES:
        if mode in target.op.modes:
            yield from (_asked(target, mode, dtype) for dtype in target.dtypes)
    for slot in target.op.inputs:
        if not slot.differentiable and target.op.dtype_of(slot, target.widest) in FLOATS:
            yield _undeclared(target, slot.name)


def _asked(target: Target, mode: Mode, dtype: str) -> Finding:
    place, count = Place(NAME, mode=mode, dtype=dtype), len(target.points)
    try:
        for sample in target.subsamples:
            if (here := target.at(sample, dtype)) is not None:
                _ask(here.moved(mode, target.device), max(target.options.orders))
    except Overloaded as error:
        return Finding(place, "skipped", error.detail)
    except OpFailed as error:
        slots = [entry.loc[-1] for entry in error.entries]
        inputs = [slot.name for slot in target.op.inputs if slot.name in slots]
        return Finding(replace(place, input=inputs[0] if inputs else None), "fail", error.detail, count)
    return Finding(place, "pass", "count, types, shapes and dtypes of outputs and gradients are as declared", count)


def _ask(sample: Sample, order: int) -> None:
    """Ask for everything; where that fails, in the order in which a fault is plainest."""
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


def _undeclared(target: Target, name: str) -> Finding:
    """Look for a gradient of an input that is declared to have none."""
    place, count = Place(NAME, 1, input=name, dtype=target.widest), len(target.points)
    if any(_has_gradient(sample, name) for sample in target.subsamples):
        return Finding(place, "fail", f"{name} is declared not differentiable, but has a gradient that is not 0", count)
    return Finding(place, "pass", f"{name} has no gradient, as declared", count)


def _has_gradient(sample: Sample, name: str) -> bool:
    call = Evaluation(sample.point, "vjp", as_found, wrt=(name,), cotangents=sample.cotangents)
    try:
        with op_errors(sample.point.op.name):
            found = run(call.program, "graph", call.leaves, sample.point.spec.device)
    except OpFailed:
        # The service refuses a gradient that is missing, which is what should be.
        return False
    dx = found.get(("gradients", name))
    return dx is not None and bool(np.any(dx))
