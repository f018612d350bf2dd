"""What an API is to the router, and what the APIs share: methods, dtypes, zeros, documents."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from app.autodiff.derivatives import output_shapes
from app.autodiff.evaluation import Evaluation
from app.autodiff.point import Point
from app.errors import MAX_GOT, MethodNotAllowed, clip, wrong
from app.http.request import Request, Route
from app.requests.answering import Job, Reply
from app.requests.plans import Task
from app.runtime.cancellation import Checkpoint
from app.telemetry.counters import Counters
from app.tensors.dtypes import DTYPES
from app.tensors.strict_json import dumps
from ops import Array, Input, Op, Output

Result = TypeVar("Result")


@dataclass(frozen=True)
class Routes:
    """The routes of one API: ``by_path``, and what ``other`` returns for an unknown path that belongs to this API.

    Even the error for such a path is written in the API's dialect.
    """

    by_path: Mapping[str, Route]
    other: Callable[[str], Route | None] = lambda path: None


def wrong_method(request: Request, method: str) -> MethodNotAllowed:
    """Return the error for a request by another method than this path's."""
    return MethodNotAllowed(f"expected {method} on this path, got {request.method}", headers={"Allow": method})


def type_variable(op: Op, given: Mapping[str, Any], field: str) -> str | None:
    """Return the dtype of the op's type variable that typed inputs have, ``None`` where none of them has it.

    ``given`` has the name of a dtype for each typed input. Raises ``Unprocessable`` where two inputs differ.
    """
    kinds = {slot.name: given[slot.name] for slot in op.inputs if len(slot.dtypes) > 1 and slot.name in given}
    first = next(iter(kinds), None)
    for name, dtype in kinds.items():
        if first is not None and dtype != kinds[first]:
            expected = f"{clip(str(kinds[first]), MAX_GOT)}, as for {first}"
            raise wrong((field, name), "the inputs have different dtypes", expected=expected, got=str(dtype))
    return None if first is None else kinds[first]


def finished_job(
    task: Task, finish: Callable[[Any], Result], write: Callable[[Result], Reply], counters: Counters
) -> Job:
    """Return the job of a task, whose result goes through ``finish`` and then through ``write``.

    Steps may need TensorFlow to finish, so they finish within the work.
    """
    owner, work = task.point.op.name, task.work
    if isinstance(work, Evaluation):
        return Job(owner, work, task.is_long, lambda result: write(finish(result)), counters)

    def steps(checkpoint: Checkpoint) -> Result:
        return finish(work(checkpoint))

    return Job(owner, steps, task.is_long, write, counters)


def zeros(point: Point, slots: Sequence[Input | Output]) -> Array:
    """Return the derivative of an output, or of a gradient, by what it does not depend on, for clients that want one.

    Its shape is those of the slots, one after the other, and its dtype that of the last. May run the op, as
    ``output_shapes`` does.
    """
    shape = [size for slot in slots for size in _shape(point, slot)]
    return np.zeros(shape, DTYPES[point.op.dtype_of(slots[-1], point.spec.dtype)].numpy)


def _shape(point: Point, slot: Input | Output) -> tuple[int, ...]:
    return point.inputs[slot.name].shape if isinstance(slot, Input) else output_shapes(point)[slot.name]


def document_reply(document: Any, media_type: str = "application/json") -> Reply:
    """Return a document, in which every number is finite, as an answer."""
    body = dumps(document)
    return Reply(media_type, [body], len(body))


def shown(names: Collection[str]) -> str:
    """Return names as a list in a sentence, or that there are none."""
    return ", ".join(names) or "none"
