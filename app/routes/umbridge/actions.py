"""UM-Bridge's actions: how each becomes a native operation, and how its response is written.

An absent derivative becomes a vector of zeros, because the client expects a vector.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np

from app.autodiff import derivatives
from app.autodiff.absent import Absent
from app.autodiff.binding import has_order
from app.autodiff.point import Point
from app.errors import Loc, Unprocessable, near, wrong
from app.execution.calls import Call, Work
from app.execution.engine import Engine
from app.requests import answers, models
from app.requests.answering import Reply
from app.requests.answers import JSON
from app.requests.brief import Reading
from app.requests.digits import Directions
from app.requests.fields import fields_of
from app.requests.operations import OPERATIONS
from app.requests.plans import Fields, Operation, Plan, Plans
from app.routes.protocol import document_reply
from app.routes.umbridge import nonfinite
from app.routes.umbridge.models import Model, Models, Vector, relocate_errors
from app.tensors.casting import Numbers, describe
from app.tensors.fast_json import Parse, Place
from app.tensors.json import decode
from app.tensors.layouts import Placeholder
from app.tensors.strict_json import Body
from ops import Array, Op


class UnsupportedFeature(Unprocessable):
    """The model does not support this action."""


Result = Any
Select = Callable[[Result], "Placeholder | list[Placeholder]"]
# How jsonlite, the JSON library of R's client, writes the infinities.
_INFINITIES_OF_R = {"Inf": "Infinity", "-Inf": "-Infinity"}


@dataclass(frozen=True)
class Action:
    """An action on a model: its fields besides ``input``, its operation, and the translation of its requests.

    ``translate`` returns the fields of the native request besides the point, and a function that selects the output of
    this action from the native result.
    """

    name: str
    fields: tuple[str, ...]
    operation: Operation
    translate: Callable[[Model, Fields], tuple[dict[str, Any], Select]]


def _evaluate(model: Model, fields: Fields) -> tuple[dict[str, Any], Select]:
    del fields
    return {}, lambda result: [_flat(result[y.name], y) for y in model.outputs]


def _gradient(model: Model, fields: Fields) -> tuple[dict[str, Any], Select]:
    y, x = _differentiable(fields, "outWrt", model.outputs), _differentiable(fields, "inWrt", model.inputs)
    native = {"cotangents": {y.name: _numbers(fields["sens"], y, ("sens",))}, "wrt": [x.name]}
    return native, lambda result: _flat(result[1][x.name], x)


def _apply_jacobian(model: Model, fields: Fields) -> tuple[dict[str, Any], Select]:
    y, x = _differentiable(fields, "outWrt", model.outputs), _differentiable(fields, "inWrt", model.inputs)
    native = {"tangents": {x.name: _numbers(fields["vec"], x, ("vec",))}}
    return native, lambda result: _flat(result[y.name], y)


def _apply_hessian(model: Model, fields: Fields) -> tuple[dict[str, Any], Select]:
    y = _differentiable(fields, "outWrt", model.outputs)
    a, b = (_differentiable(fields, field, model.inputs) for field in ("inWrt1", "inWrt2"))
    native = {
        "cotangents": {y.name: _numbers(fields["sens"], y, ("sens",))},
        "vectors": {b.name: _numbers(fields["vec"], b, ("vec",))},
        "wrt": [a.name],
    }
    return native, lambda result: _flat(result[a.name], a)


def _tangents_of_vjp(plan: Plan, point: Point, directions: Directions) -> Work:
    return derivatives.vjp_jvp(point, plan.wrt, directions["cotangents"], directions["vectors"] or {})


HESSIAN = Operation(
    "vjp_jvp",
    "The Hessian times a vector",
    models.HvpRequest,
    answers.HvpAnswer,
    {"cotangents": "outputs", "vectors": "inputs"},
    _tangents_of_vjp,
    lambda plan, result: {"products": result},
)
_ORDERS = {"Evaluate": 0, "Gradient": 1, "ApplyJacobian": 1, "ApplyHessian": 2}
"""The order of the derivatives of each action."""
ACTIONS: Mapping[str, Action] = {
    f"/{action.name}": action
    for action in (
        Action("Evaluate", (), OPERATIONS["forward"], _evaluate),
        Action("Gradient", ("outWrt", "inWrt", "sens"), OPERATIONS["vjp"], _gradient),
        Action("ApplyJacobian", ("outWrt", "inWrt", "vec"), OPERATIONS["jvp"], _apply_jacobian),
        Action("ApplyHessian", ("outWrt", "inWrt1", "inWrt2", "sens", "vec"), HESSIAN, _apply_hessian),
    )
}


def read_call(
    engine: Engine, plans: Plans, models: Models, action: Action, body: Body, *, parse: Parse, user_agent: bytes
) -> Call:
    """Return the call of a request. Check the model first, then its support for the action, then the other fields."""
    fields = fields_of(body, lambda body: parse(body, _places))
    op = models.op_at_hand(name_of(fields))
    with Reading(op, action.operation.name, len(body)):
        models.check(op)
        _check_support(op, action)
        model, native, select = _native(models, op, action, fields)
        counters = engine.counters(op.owner, "hvp" if action.operation is HESSIAN else action.operation.name)
        reply = partial(_reply, select, model, user_agent)
        with relocate_errors(partial(_client_loc, model)):
            return plans.plan(action.operation, op, native).call(native, reply, counters, fields.sources)


def _check_support(op: Op, action: Action) -> None:
    """Raise ``UnsupportedFeature`` for an action that a model does not have."""
    if not supports(op, action):
        claim, reason = op.claim(op.attrs()), "which is not differentiable"
        if not has_order(op, claim, _ORDERS[action.name]):
            reason = "which has no second order"
        elif not claim.linear:
            reason = "whose gradient is not linear in the cotangent"
        raise UnsupportedFeature(f"{action.name} is not supported by model {op.name}, {reason}")


def _native(models: Models, op: Op, action: Action, fields: Fields) -> tuple[Model, Fields, Select]:
    """Return the model of a request, the fields of the native one, and what selects the output of its result."""
    refuse_unknown(fields, ("name", "config", "input", *action.fields))
    for name in ("input", *action.fields):
        if name not in fields:
            raise wrong((name,), "missing field", expected=f"the field {name}", got="nothing")
    model = models.model(op, fields.get("config", {}))
    directions, select = action.translate(model, fields)
    native = {"inputs": _inputs(model, fields["input"]), "attrs": model.attrs, "dtype": model.dtype, **directions}
    return model, native, select


def _places(request: dict[str, Any]) -> list[Place]:
    """Return the places of vectors in a request."""
    return [(request, "input", list), (request, "sens", Numbers), (request, "vec", Numbers)]


def _client_loc(model: Model, loc: Loc) -> Loc:
    """Return the location in the client's request of a location in the native one: inputs are numbered, and flat."""
    match loc:
        case ("inputs", str(name), *index):
            i, vector = next((i, x) for i, x in enumerate(model.inputs) if x.name == name)
            if not index or len(index) != len(vector.shape):
                return ("input", i)
            return ("input", i, int(np.ravel_multi_index(cast("list[int]", index), vector.shape)))
        case ("attrs", *rest):
            return ("config", "attrs", *rest)
        case _:
            return loc


def name_of(fields: Fields) -> object:
    """Return the model name of a request; raises ``Unprocessable`` if it is missing."""
    if "name" not in fields:
        raise wrong(("name",), "missing field", expected="the name of a model", got="nothing")
    return fields["name"]


def refuse_unknown(fields: Fields, known: Collection[str]) -> None:
    """Raise ``Unprocessable`` for an unknown field."""
    for name in fields:
        if name not in known:
            raise wrong((name,), "unknown field", expected=near(name, known), got=name)


def supports(op: Op, action: Action) -> bool:
    """Return whether a model with its default attributes supports an action."""
    claim = op.claim(op.attrs())
    if (action.name == "ApplyJacobian" and not claim.linear) or not has_order(op, claim, _ORDERS[action.name]):
        return False
    return action.name == "Evaluate" or all(
        any(op.is_differentiable(slot, "float64") for slot in slots) for slots in (op.inputs, op.outputs)
    )


def _inputs(model: Model, value: Any) -> dict[str, Array]:
    if not isinstance(value, list) or len(value) != len(model.inputs):  # pyright: ignore[reportUnknownArgumentType]
        expected = (
            f"a list of {len(model.inputs)} lists of numbers, one for each of {', '.join(x.name for x in model.inputs)}"
        )
        if model.op.optional_names:
            expected += f"; UM-Bridge has no optional inputs, so {', '.join(model.op.optional_names)} must be sent too"
        raise wrong(("input",), "expected a list of vectors", expected=expected, got=describe(value))
    return {x.name: _numbers(value[i], x, ("input", i)) for i, x in enumerate(model.inputs)}


def _numbers(value: Any, vector: Vector, loc: Loc) -> Array:
    """Decode a flat vector of a request; return it in the shape of its tensor."""
    if not isinstance(value, list | Numbers):
        raise wrong(loc, "expected a list of numbers", expected=f"a list of {vector.size} numbers", got=describe(value))
    array = _decode(cast("list[Any] | Numbers", value), vector.dtype, loc)
    if array.shape != (vector.size,):
        message = f"length mismatch for vector {vector.name} (config.shape sets its length)"
        expected = f"{vector.size} numbers for shape {list(vector.shape)}"
        got = str(array.size) if array.ndim == 1 else f"shape {list(array.shape)}"
        raise wrong(loc, message, expected=expected, got=got)
    return array.reshape(vector.shape)


def _decode(numbers: list[Any] | Numbers, dtype: str, loc: Loc) -> Array:
    """Decode a list of numbers, in which R writes infinity as ``"Inf"``."""
    try:
        return decode(numbers, dtype, loc)
    except Unprocessable:
        if isinstance(numbers, Numbers):
            raise
        if None in numbers:
            expected = 'a number, or "NaN", "Infinity" or "-Infinity"; C++ and MATLAB write all three as null'
            raise wrong((*loc, numbers.index(None)), "expected a number", expected=expected, got="null") from None
        spelled = [_INFINITIES_OF_R.get(x, x) if isinstance(x, str) else x for x in numbers]
        return decode(spelled, dtype, loc)


def _differentiable(fields: Fields, field: str, vectors: tuple[Vector, ...]) -> Vector:
    """Return the vector whose index is in ``field``; raises ``Unprocessable`` if it is not differentiable."""
    index = fields[field]
    if isinstance(index, bool) or not isinstance(index, int | float) or index not in range(len(vectors)):
        raise wrong((field,), "unknown vector", expected=f"an index from 0 to {len(vectors) - 1}", got=describe(index))
    vector = vectors[int(index)]
    if not vector.is_differentiable:
        names = ", ".join(f"{i} ({other.name})" for i, other in enumerate(vectors) if other.is_differentiable)
        expected = f"one of {names}" if names else f"a dtype in which {vector.name} is differentiable"
        raise wrong((field,), f"{vector.name} is not differentiable", expected=expected, got=str(int(index)))
    return vector


def _flat(value: Array | Absent, vector: Vector) -> Placeholder:
    return Placeholder(np.zeros(vector.size) if isinstance(value, Absent) else value, "flat", is_wide=True)


def _reply(select: Select, model: Model, user_agent: bytes, result: Result) -> Reply:
    output = select(result)
    placeholders = output if isinstance(output, list) else [output]
    if all(np.isfinite(each.array).all() for each in placeholders):
        reply = document_reply({"output": output})
        return reply._replace(is_for_finite=True)
    vectors = [np.asarray(each.array).reshape(-1) for each in placeholders]
    wide = [vector if vector.dtype.kind in "iu" else vector.astype(np.float64) for vector in vectors]
    form = model.nonfinite or nonfinite.form_for(user_agent)
    text = nonfinite.dumps(wide if isinstance(output, list) else wide[0], form)
    return Reply(JSON, [b'{"output": ', text, b"}"])
