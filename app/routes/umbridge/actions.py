"""UM-Bridge's actions: what each asks of an op, and how its answer is written.

A derivative that no path leads to is 0 here, for a vector must come. NaN and the infinities, for which JSON has no word
and the protocol no other, are written as Python's client reads them: ``NaN``, ``Infinity``, ``-Infinity``.
"""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np

from app.autodiff import derivatives
from app.autodiff.derivatives import Absent
from app.autodiff.point import Point
from app.errors import Loc, Unprocessable, near, wrong
from app.execution.engine import Engine
from app.requests import models
from app.requests.answering import Job, Reply
from app.requests.negotiation import JSON, fields_of
from app.requests.operations import OPERATIONS, Directions, Fields, Operation, Query, Work
from app.requests.plans import Plans
from app.routes.protocol import document_reply
from app.routes.umbridge.models import Model, Models, Vector, placed
from app.tensors.casting import describe
from app.tensors.json import decode
from app.tensors.strict_json import Body
from ops import Array, Op


class UnsupportedFeature(Unprocessable):
    """The model cannot do this."""


Found = Any
Pick = Callable[[Found], "Array | list[Array]"]


@dataclass(frozen=True)
class Action:
    """What can be asked of a model: its fields, the operation, and how a request becomes one of that.

    ``ask`` returns what the native request says beside the point, and what of its answer is the answer here.
    """

    name: str
    fields: tuple[str, ...]
    operation: Operation
    ask: Callable[[Model, Fields], tuple[dict[str, Any], Pick]]


def _evaluate(model: Model, fields: Fields) -> tuple[dict[str, Any], Pick]:
    del fields
    return {}, lambda found: [_flat(found[y.name], y) for y in model.outputs]


def _gradient(model: Model, fields: Fields) -> tuple[dict[str, Any], Pick]:
    y, x = _live(fields, "outWrt", model.outputs), _live(fields, "inWrt", model.inputs)
    asked = {"cotangents": {y.name: _numbers(fields["sens"], y, ("sens",))}, "wrt": [x.name]}
    return asked, lambda found: _flat(found[1][x.name], x)


def _apply_jacobian(model: Model, fields: Fields) -> tuple[dict[str, Any], Pick]:
    y, x = _live(fields, "outWrt", model.outputs), _live(fields, "inWrt", model.inputs)
    asked = {"tangents": {x.name: _numbers(fields["vec"], x, ("vec",))}}
    return asked, lambda found: _flat(found[y.name], y)


def _apply_hessian(model: Model, fields: Fields) -> tuple[dict[str, Any], Pick]:
    y = _live(fields, "outWrt", model.outputs)
    a, b = _live(fields, "inWrt1", model.inputs), _live(fields, "inWrt2", model.inputs)
    asked = {
        "cotangents": {y.name: _numbers(fields["sens"], y, ("sens",))},
        "vectors": {b.name: _numbers(fields["vec"], b, ("vec",))},
        "wrt": [a.name],
    }
    return asked, lambda found: _flat(found[a.name], a)


def _tangents_of_vjp(query: Query, point: Point, directions: Directions) -> Work:
    return derivatives.vjp_jvp(point, query.wrt, directions["cotangents"], directions["vectors"] or {})


HESSIAN = Operation(
    "vjp_jvp",
    "The Hessian times a vector",
    models.HvpRequest,
    models.HvpAnswer,
    {"cotangents": "outputs", "vectors": "inputs"},
    _tangents_of_vjp,
    lambda asked, found: {"products": found},
)
ACTIONS: Mapping[str, Action] = {
    f"/{one.name}": one
    for one in (
        Action("Evaluate", (), OPERATIONS["forward"], _evaluate),
        Action("Gradient", ("outWrt", "inWrt", "sens"), OPERATIONS["vjp"], _gradient),
        Action("ApplyJacobian", ("outWrt", "inWrt", "vec"), OPERATIONS["jvp"], _apply_jacobian),
        Action("ApplyHessian", ("outWrt", "inWrt1", "inWrt2", "sens", "vec"), HESSIAN, _apply_hessian),
    )
}


def read_job(engine: Engine, plans: Plans, models: Models, action: Action, body: Body) -> Job:
    """Read a request, in the protocol's order: the model, whether it can do this, and only then the rest."""
    fields = fields_of(body)
    op = models.op(name_of(fields))
    if not supports(op, action):
        raise UnsupportedFeature(f"{action.name} is not supported by model {op.name}, {_why_not(op)}")
    refuse_unknown(fields, ("name", "config", "input", *action.fields))
    for name in ("input", *action.fields):
        if name not in fields:
            raise wrong((name,), "missing field", expected=f"the field {name}", got="nothing")
    model = models.model(op, fields.get("config", {}))
    asked, pick = action.ask(model, fields)
    native = {"inputs": _inputs(model, fields["input"]), "attrs": model.attrs, "dtype": model.dtype, **asked}
    with placed(partial(_place, model)):
        task = plans.plan(action.operation, op, native).task(native)
    counters = engine.counters(op.name, "hvp" if action.operation is HESSIAN else action.operation.name)
    return Job(op.name, task.work, task.is_long, partial(_reply, pick), counters)


def _place(model: Model, loc: Loc) -> Loc:
    """Return where a request has what stands at a place of the native one: inputs are counted, and flat."""
    match loc:
        case ("inputs", str(name), *index):
            place, vector = next((i, x) for i, x in enumerate(model.inputs) if x.name == name)
            if not index or len(index) != len(vector.shape):
                return ("input", place)
            return ("input", place, int(np.ravel_multi_index(cast("list[int]", index), vector.shape)))
        case ("attrs", *rest):
            return ("config", "attrs", *rest)
        case _:
            return loc


def name_of(fields: Fields) -> object:
    """Return the name of the model that a request asks for; raises ``Unprocessable`` if it has none."""
    if "name" not in fields:
        raise wrong(("name",), "missing field", expected="the name of a model", got="nothing")
    return fields["name"]


def refuse_unknown(fields: Fields, known: Collection[str]) -> None:
    """Raise ``Unprocessable`` for a field that is not known."""
    for name in fields:
        if name not in known:
            raise wrong((name,), "unknown field", expected=near(name, known), got=name)


def supports(op: Op, action: Action) -> bool:
    """Tell whether a model can do something, with the attributes that it has by default."""
    if action.name == "ApplyJacobian" and not op.claim(op.attrs()).linear:
        return False
    return action.name == "Evaluate" or all(
        any(op.is_differentiable(slot, "float64") for slot in slots) for slots in (op.inputs, op.outputs)
    )


def _why_not(op: Op) -> str:
    linear = op.claim(op.attrs()).linear
    return "which is not differentiable" if linear else "whose gradient is not linear in the cotangent"


def _inputs(model: Model, value: Any) -> dict[str, Array]:
    if not isinstance(value, list) or len(value) != len(model.inputs):  # pyright: ignore[reportUnknownArgumentType]
        expected = (
            f"a list of {len(model.inputs)} lists of numbers, one for each of {', '.join(x.name for x in model.inputs)}"
        )
        raise wrong(("input",), "expected a list of vectors", expected=expected, got=describe(value))
    return {x.name: _numbers(value[i], x, ("input", i)) for i, x in enumerate(model.inputs)}


def _numbers(value: Any, vector: Vector, loc: Loc) -> Array:
    """Return a vector of a request as the tensor that it stands for."""
    if not isinstance(value, list):
        raise wrong(loc, "expected a list of numbers", expected=f"a list of {vector.size} numbers", got=describe(value))
    array = decode(value, vector.dtype, loc)
    if array.shape != (vector.size,):
        message = f"length mismatch for vector {vector.name} (config.shape sets its length)"
        expected = f"{vector.size} numbers for shape {list(vector.shape)}"
        got = str(array.size) if array.ndim == 1 else f"shape {list(array.shape)}"
        raise wrong(loc, message, expected=expected, got=got)
    return array.reshape(vector.shape)


def _live(fields: Fields, field: str, vectors: tuple[Vector, ...]) -> Vector:
    """Return the vector that an index means, which derivatives must reach."""
    index = fields[field]
    if isinstance(index, bool) or not isinstance(index, int | float) or index not in range(len(vectors)):
        raise wrong((field,), "unknown vector", expected=f"an index from 0 to {len(vectors) - 1}", got=describe(index))
    vector = vectors[int(index)]
    if not vector.is_live:
        live = ", ".join(f"{i} ({one.name})" for i, one in enumerate(vectors) if one.is_live)
        expected = f"one of {live}" if live else f"a dtype in which {vector.name} is differentiable"
        raise wrong((field,), f"{vector.name} is not differentiable", expected=expected, got=str(int(index)))
    return vector


def _flat(value: Array | Absent, vector: Vector) -> Array:
    if isinstance(value, Absent):
        return np.zeros(vector.size)
    return value.reshape(-1).astype(np.float64, copy=False) if value.dtype.kind not in "iu" else value.reshape(-1)


def _reply(pick: Pick, found: Found) -> Reply:
    output = pick(found)
    arrays = output if isinstance(output, list) else [output]
    if all(np.isfinite(array).all() for array in arrays):
        return document_reply({"output": output})
    numbers = [array.tolist() for array in arrays]
    text = json.dumps({"output": numbers if isinstance(output, list) else numbers[0]}).encode()
    return Reply(JSON, [text], len(text))
