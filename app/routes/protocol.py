"""What the APIs share."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from app.autodiff.derivatives import output_shapes
from app.autodiff.kept import Kept
from app.autodiff.point import Point
from app.errors import MAX_GOT, clip, wrong
from app.execution.engine import Engine
from app.http.request import Request
from app.http.route import Answer, Find
from app.requests.answering import Reply
from app.telemetry.accounts import Owner
from app.telemetry.counters import Counters
from app.tensors.dtypes import COMPLEX, DTYPES
from app.tensors.layouts import lay_out
from ops import Array, Input, Op, Output

Result = TypeVar("Result")


def per_op(engine: Engine, label: str, make: Callable[[Op, Counters], Answer]) -> Find:
    """Return what finds the handler of an op, registered or derived; ``label`` is that of its counters.

    ``make`` returns the handler, in no time, and the op keeps it. It raises ``NotFound`` for an unknown op.
    """
    kept = Kept(lambda op: make(op, engine.counters(op.owner, label)))

    def counters(op: str, **others: str) -> Counters:
        del others
        return engine.counters(owner, label) if (owner := engine.owner(op)) else engine.counters("", "other")

    async def handler(request: Request, op: str, **others: str) -> Answer:
        del others
        # Found each time: a posted graph may be gone, and is used now.
        return kept(await find_op(engine, request, op))

    return Find(counters, handler)


async def find_op(engine: Engine, request: Request, name: str) -> Op:
    """Return the op that a request names; raises the errors of ``Engine.find_op``."""
    return await engine.find_op(name, request.deadline.at, request.key)


async def described(engine: Engine, request: Request, op: Op, work: Callable[[], Result]) -> Result:
    """Return ``work()``, which describes an op for a request; raises the errors of ``Engine.describe``."""
    return await engine.describe(work, Owner(op.owner, request.key), request.deadline.at)


def type_variables(op: Op, dtypes: Mapping[str, Any], field: str) -> tuple[str | None, str | None]:
    """Return the dtypes of the op's type variables, ``None`` for one that no typed input has.

    ``dtypes`` has the name of the dtype of each typed input. Raises ``Unprocessable`` if two inputs differ.
    """
    firsts = dict[tuple[str, ...], str]()
    for slot in op.inputs:
        if len(slot.dtypes) == 1 or slot.name not in dtypes:
            continue
        first = firsts.setdefault(slot.dtypes, slot.name)
        if dtypes[slot.name] != dtypes[first]:
            expected, got = f"{clip(str(dtypes[first]), MAX_GOT)}, as for {first}", str(dtypes[slot.name])
            raise wrong((field, slot.name), "the inputs have different dtypes", expected=expected, got=got)
    first, second = (firsts.get(variable) for variable in (op.dtypes, op.second_dtypes))
    return None if first is None else dtypes[first], None if second is None else dtypes[second]


def differentiable(op: Op, slots: Sequence[Input | Output]) -> list[Input | Output]:
    """Return the inputs or outputs that are differentiable in at least one of the op's dtypes."""
    return [slot for slot in slots if any(op.is_differentiable(slot, dtype) for dtype in op.dtypes)]


def zeros(point: Point, slots: Sequence[Input | Output]) -> Array:
    """Return zeros in place of an absent derivative, for clients that expect an array.

    The shape is the shapes of the slots, concatenated; the dtype is that of the last slot. May run the op, as
    ``output_shapes`` does.
    """
    shape: list[int] = []
    for slot in slots:
        side = point.spec.inputs if isinstance(slot, Input) else point.spec.outputs
        own = point.inputs[slot.name].shape if isinstance(slot, Input) else output_shapes(point)[slot.name]
        shape += side.shown_shape(slot.name, own)
    dtype = point.op.shown_dtype_of(slots[-1], point.spec.dtype)
    return np.zeros(shape, (COMPLEX if dtype in COMPLEX else DTYPES)[dtype].numpy)


def document_reply(document: Any, media_type: str = "application/json") -> Reply:
    """Return a document, which may have slots, as a JSON response; every number in it must be finite."""
    layout = lay_out(document)
    return Reply(media_type, layout.pieces(), layout=layout)


def name_list(names: Collection[str]) -> str:
    """Return names separated by commas, or ``none``."""
    return ", ".join(names) or "none"
