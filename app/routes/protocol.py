"""What a protocol is to the service: the paths that it has, who answers there, and how its errors are told."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from starlette.types import ASGIApp, Scope

from app.autodiff.derivatives import output_shapes
from app.autodiff.evaluation import Evaluation
from app.autodiff.point import Point
from app.errors import MAX_GOT, MethodNotAllowed, clip, wrong
from app.execution.engine import Engine
from app.execution.lane import Checkpoint
from app.http.problems import Dialect
from app.requests.answering import Reply
from app.requests.plans import Plans, Task
from app.settings import ProtocolName
from app.tensors.dtypes import DTYPES
from app.tensors.strict_json import dumps
from ops import Array, Input, Op, Output

Result = TypeVar("Result")

Labels = tuple[str, str]
"""The op and the operation that a request is counted as."""


@dataclass(frozen=True)
class Protocol:
    """One protocol.

    ``has`` tells whether a path is this protocol's, so that even an error there is; ``serve`` makes the app that
    answers on all of them, with plans kept in common with the others. ``counted`` gives, for the ops that are served,
    the paths that are known before a body is read and what they are counted as. ``unpacks``: bodies may be compressed,
    and have more in them than JSON.
    """

    name: ProtocolName
    has: Callable[[str], bool]
    serve: Callable[[Engine, Plans], ASGIApp]
    dialect: Dialect
    counted: Callable[[Iterable[Op]], Mapping[str, Labels]]
    unpacks: bool = False


def need_method(scope: Scope, method: str) -> None:
    """Raise ``MethodNotAllowed`` for a request by another method than this path's."""
    if scope["method"] != method:
        detail = f"expected {method} on this path, got {scope['method']}"
        raise MethodNotAllowed(detail, headers={"Allow": method})


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


def finished(
    task: Task, finish: Callable[[Any], Result], write: Callable[[Result], Reply]
) -> tuple[Task, Callable[[Any], Reply]]:
    """Return a task and how to write what it finds, with ``finish`` between them.

    What is no ``Evaluation`` may need TensorFlow to finish, and does so within the work.
    """
    work = task.work
    if isinstance(work, Evaluation):
        return task, lambda found: write(finish(found))

    def steps(checkpoint: Checkpoint) -> Result:
        return finish(work(checkpoint))

    return task._replace(work=steps), write


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
