"""Tesseract: each op is one, under ``/tesseract/{op}/``, with its inputs and its attributes side by side.

An array is ``{"shape", "dtype", "data": {"buffer", "encoding"}}``, with or without ``"object_type": "array"``, a nested
list or a number. Those that say their dtype give it to the op's type variable, and the others follow.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import Any, NamedTuple, cast

from starlette.types import ASGIApp, Receive, Scope, Send

from app.autodiff.binding import bind_shapes, bind_spec
from app.autodiff.derivatives import Absent, Derivative
from app.autodiff.point import Point
from app.errors import MAX_ENTRIES, MAX_TEXT, Entry, Malformed, NotFound, PullbackError, Unprocessable, clip, near
from app.execution.engine import Engine
from app.http.problems import RenderedError
from app.requests.answering import SMALL_BODY, Question, Reader, Reply, answer, body_of, send_reply
from app.requests.negotiation import JSON, accepted, content_type, fields_of
from app.requests.operations import OPERATIONS, Tree
from app.requests.plans import Plan, Plans
from app.routes.protocol import Labels, Protocol, document_reply, finished, need_method, zeros
from app.routes.tesseract.forms import (
    NativeRequest,
    decode,
    encode,
    object_at,
    places,
    read,
    read_inputs,
    refuse_object_type,
)
from app.routes.tesseract.openapi import JVP, VJP, Endpoint, endpoints, openapi, tells_shapes
from app.tensors import fast_json, json
from app.tensors.dtypes import DTYPES
from app.tensors.json import Encoding
from app.tensors.strict_json import Body
from ops import Array, Op

PREFIX = "/tesseract/"
# The first, which is exact and several times as fast, is for clients that take anything.
FORMATS: Mapping[str, Encoding] = {"application/json+base64": "base64", JSON: "nested"}
_FIELDS = {"attrs": "inputs", "cotangents": "cotangent_vector", "tangents": "tangent_vector"}


class _Place(NamedTuple):
    """An endpoint of an op, and what computes there."""

    engine: Engine
    plans: Plans
    op: Op
    endpoint: Endpoint


class _Route(NamedTuple):
    """The method of a path, and who answers there."""

    method: str
    app: ASGIApp


def _serve(engine: Engine, plans: Plans) -> ASGIApp:
    routes_of = cache(partial(_routes, engine, plans))

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        name, _, last = scope["path"].removeprefix(PREFIX).partition("/")
        routes = routes_of(engine.op(name))
        if last not in routes:
            raise NotFound(f"unknown endpoint {last!r} of op {name}; expected {near(last, routes)}")
        need_method(scope, routes[last].method)
        await routes[last].app(scope, receive, send)

    return served


def _routes(engine: Engine, plans: Plans, op: Op) -> dict[str, _Route]:
    """Return what there is under the prefix of an op."""
    found = {
        "openapi.json": _Route("GET", partial(_told, document_reply(openapi(op)))),
        "health": _Route("GET", partial(_told, document_reply({"status": "ok"}))),
    }
    if tells_shapes(op):
        found["abstract_eval"] = _Route("POST", partial(_abstract_eval, engine, op))
    for name, endpoint in endpoints(op).items():
        found[name] = _Route("POST", partial(_computed, _Place(engine, plans, op, endpoint)))
    return found


async def _told(reply: Reply, scope: Scope, receive: Receive, send: Send) -> None:
    await body_of(scope, receive)  # the client sends one with a GET
    await send_reply(reply, scope, send)


async def _computed(at: _Place, scope: Scope, receive: Receive, send: Send) -> None:
    encoding, counters = _negotiated(scope), at.engine.counters(at.op.name, at.endpoint.operation)
    reader = Reader(partial(_question, at, encoding), at.op.name, counters)
    await answer(at.engine, reader, await body_of(scope, receive), scope, send)


async def _abstract_eval(engine: Engine, op: Op, scope: Scope, receive: Receive, send: Send) -> None:
    _negotiated(scope)
    body = await body_of(scope, receive)
    reply = await asyncio.to_thread(_shapes, engine, op, body) if len(body) > SMALL_BODY else _shapes(engine, op, body)
    await send_reply(reply, scope, send)


def _negotiated(scope: Scope) -> Encoding:
    """Return how to write arrays; raises ``NotAcceptable`` and, for a body that is not JSON, another error."""
    headers = dict(scope["headers"])
    content_type(headers, default=JSON)
    return FORMATS[accepted(headers, tuple(FORMATS))]


def _question(at: _Place, encoding: Encoding, body: Body) -> Question:
    said = read(at.op, at.endpoint, _document(at.op, body))
    plan = at.plans.plan(OPERATIONS[at.endpoint.operation], at.op, said.fields)
    task = plan.task(said.fields)
    finish = partial(_filled, at.endpoint, plan, said, task.point)
    task, write = finished(task, finish, partial(_written, encoding))
    return Question(at.op.name, task, write, at.engine.counters(at.op.name, at.endpoint.operation))


def _document(op: Op, body: Body) -> dict[str, Any]:
    return fields_of(body, partial(fast_json.parse, places=partial(places, op)))


def _filled(endpoint: Endpoint, plan: Plan, said: NativeRequest, point: Point, found: Any) -> Tree:
    """Return what is answered, with zeros for a derivative that nothing connects: clients want an array everywhere."""
    [tree] = plan.operation.tree(plan.asked, found).values()
    if endpoint is JVP:
        tree = {name: tree[name] for name in said.of}
    slots = {slot.name: slot for slot in (point.op.inputs if endpoint is VJP else point.op.outputs)}
    columns = {slot.name: slot for slot in point.op.inputs}

    def leaf(value: Derivative, name: str, *rest: str) -> Array:
        return zeros(point, (slots[name], *(columns[one] for one in rest))) if isinstance(value, Absent) else value

    return _mapped(leaf, tree)


def _written(encoding: Encoding, tree: Tree) -> Reply:
    def leaf(array: Array, *path: str) -> Any:
        del path
        return encode(array, encoding)

    return document_reply(_mapped(leaf, tree))


def _mapped(leaf: Callable[..., Any], tree: Tree, *path: str) -> Any:
    if isinstance(tree, dict):
        return {name: _mapped(leaf, value, *path, name) for name, value in cast(dict[str, Tree], tree).items()}
    return leaf(tree, *path)


def _shapes(engine: Engine, op: Op, body: Body) -> Reply:
    """Return the shapes and dtypes of the outputs for those of the inputs, of which no value is looked at."""
    fields = object_at(_document(op, body), (), known=("inputs",), needed=("inputs",))
    said = read_inputs(op, _without_abstract(op, fields["inputs"]))
    run = {"device": engine.device(None), "max_elements": engine.max_elements}
    spec = bind_spec(op, said.attrs, said.dtype, mode=op.modes[0], **run)
    shapes = {name: _shape(value, spec.inputs.dtypes[name], name) for name, value in said.tensors.items()}
    found, dtypes = bind_shapes(spec, shapes), spec.outputs.dtypes
    return document_reply({name: {"shape": list(shape), "dtype": dtypes[name]} for name, shape in found.items()})


def _without_abstract(op: Op, inputs: Any) -> Any:
    """Return the inputs without the number attributes that have only a shape, that of one: no shape depends on them."""
    if not isinstance(inputs, dict):
        return inputs
    given, numbers = cast(dict[str, Any], inputs), op.attrs.number_names()
    return {name: value for name, value in given.items() if name not in numbers or not _is_abstract(value)}


def _is_abstract(value: Any) -> bool:
    match value:
        case {"shape": [], "dtype": _}:
            return "data" not in value
        case _:
            return False


def _shape(value: Any, dtype: str, name: str) -> tuple[int, ...]:
    """Return the shape of an input, of which the rest may be missing."""
    loc = ("inputs", name)
    if not isinstance(value, dict):
        return decode(value, dtype, loc).shape
    known, needed = ("object_type", "shape", "dtype", "data"), ("shape", "dtype")
    array = object_at(cast(dict[str, Any], value), loc, known=known, needed=needed)
    refuse_object_type(array, loc)
    return json.read_shape(array["shape"], DTYPES[dtype], (*loc, "shape"))


def _dialect(error: PullbackError, instance: str) -> RenderedError:
    """Tell an error: what is wrong with a document as the client's own validation would, the rest in a sentence."""
    del instance
    if isinstance(error, Malformed):
        text = clip(error.detail, MAX_TEXT)
        fault = {"type": "json_invalid", "loc": ["body"], "msg": text, "input": {}, "ctx": {"error": text}}
        return RenderedError(422, JSON, {"detail": [fault]})
    if isinstance(error, Unprocessable):
        return RenderedError(422, JSON, {"detail": [_fault(entry) for entry in error.entries[:MAX_ENTRIES]]})
    return RenderedError(error.status, JSON, {"detail": error.sentence()})


def _fault(entry: Entry) -> dict[str, Any]:
    told = entry.document()
    expected, got, loc = told["expected"], told["got"], told["loc"]
    if loc[:1] != ["header"]:
        loc = ["body", *(_FIELDS.get(part, part) for part in loc[:1]), *loc[1:]]
    text = entry.sentence()
    return {"type": "value_error", "loc": loc, "msg": text, "input": got, "ctx": {"expected": expected, "got": got}}


def _counted(ops: Iterable[Op]) -> dict[str, Labels]:
    found: dict[str, Labels] = {}
    for op in ops:
        found |= dict.fromkeys([f"{PREFIX}{op.name}/{name}" for name in ("openapi.json", "health")], ("", "catalogue"))
        if tells_shapes(op):
            found[f"{PREFIX}{op.name}/abstract_eval"] = ("", "catalogue")
        for name, endpoint in endpoints(op).items():
            found[f"{PREFIX}{op.name}/{name}"] = (op.name, endpoint.operation)
    return found


PROTOCOL = Protocol("tesseract", lambda path: path.startswith(PREFIX), _serve, _dialect, _counted)
