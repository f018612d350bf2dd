"""Evaluations of elementwise ops, and how batches run them."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import tensorflow as tf

from app.autodiff import derivatives
from app.autodiff.binding import bind
from app.autodiff.evaluation import Evaluation
from app.autodiff.point import Point
from app.execution.batching import Batches
from app.execution.scheduler import Scheduler
from app.runtime import traces
from app.telemetry.accounts import Owner
from app.tensors.json import decode
from ops import Example, Input, Op, Output, discover
from tests.patience import PATIENCE_S

CPU = "/device:CPU:0"
REGISTRY = discover().ops
KINDS = ("forward", "vjp", "gradients", "hvp", "jvp", "diagonal")


@contextmanager
def own_traces() -> Iterator[None]:
    """Leave the traces of this process, which it shares with other tests, unchanged."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(traces, "TRACES", traces.Traces())
        yield


def point(op: Op, x: np.ndarray, dtype: str, mode: str, attrs=None) -> Point:
    inputs = {slot.name: x.tolist() for slot in op.inputs}
    run = {"device": CPU, "max_elements": 1 << 22}
    return bind(op, inputs, attrs or {}, dtype, decode, mode=mode, **run)


def call(op: Op, kind: str, x: np.ndarray, dtype: str, mode: str) -> Evaluation:
    at = point(op, x, dtype, mode)
    names, outputs = tuple(at.inputs), tuple(slot.name for slot in op.outputs)
    directions = {name: np.cos(value).astype(value.dtype) for name, value in at.inputs.items()}
    dys = dict.fromkeys(outputs, directions[names[0]])
    match kind:
        case "forward":
            return derivatives.forward(at)
        case "vjp":
            return derivatives.vjp(at, names, dys, batched=False, outputs=True)
        case "gradients":
            return derivatives.gradients(at, names, None, 2)
        case "hvp":
            return derivatives.hvp(at, names, dys, directions, batched=False)
        case "diagonal":
            return derivatives.hessian_diagonal(at, names, dys)
        case _:
            return derivatives.jvp(at, directions, batched=False)


def bits(found) -> list[bytes]:
    """Return the bits of all arrays of a result, in order."""
    if isinstance(found, np.ndarray):
        return [found.tobytes(), repr((found.shape, found.dtype)).encode()]
    values = found.values() if isinstance(found, dict) else found if isinstance(found, list | tuple) else ()
    return [one for value in values for one in bits(value)]


def picky(x):
    with tf.control_dependencies([tf.debugging.assert_less(x, 100.0, message="x is too large")]):
        return tf.identity(x) * x


PICKY = Op(
    name="picky",
    summary="x²",
    doc=__doc__,
    function=picky,
    reference=np.square,
    inputs=(Input("x", ("float32",)),),
    outputs=(Output("y", ("float32",)),),
    mechanism="custom_gradient",
    source="a test",
    batching="elementwise",
    examples=(Example("one", {"x": [1.0]}),),
)


def together(calls: list[Evaluation], **options) -> list:
    """Run calls concurrently, as requests do; return the result or the exception of each."""

    async def run() -> list:
        scheduler = Scheduler(64)
        scheduler.start()
        batches = Batches(scheduler, options.get("waiting", 64))
        deadline = time.monotonic() + PATIENCE_S
        try:
            pending = (
                batches.run(one, queue="short", owner=Owner(one.point.op.name), deadline=deadline) for one in calls
            )
            found = await asyncio.gather(*pending, return_exceptions=True)
            return [
                each if isinstance(each, BaseException) else one.finish(each)
                for one, each in zip(calls, found, strict=True)
            ]
        finally:
            scheduler.stop()

    return asyncio.run(run())
