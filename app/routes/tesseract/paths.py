"""The paths of Tesseract: each op is a Tesseract under ``/tesseract/{op}/``; ``inputs`` has its inputs and attributes.

An array is ``{"shape", "dtype", "data": {"buffer", "encoding"}}``, with or without ``"object_type": "array"``, a nested
list or a number. Typed arrays determine the op's type variable; lists and numbers get its dtype.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
from fastapi import APIRouter

from app.autodiff.absent import Absent
from app.autodiff.binding import bind_shapes, bind_spec
from app.autodiff.derivatives import Derivative
from app.autodiff.kept import Kept
from app.autodiff.point import Point
from app.errors import (
    MAX_ENTRIES,
    MAX_TEXT,
    Entry,
    Malformed,
    NotFound,
    PullbackError,
    Unprocessable,
    WrongHost,
    clip,
    did_you_mean,
)
from app.execution.calls import Call
from app.execution.engine import Engine
from app.http.problems import RenderedError
from app.http.request import Request
from app.http.route import Answer, Find, RawRoute, RestRoute, always
from app.requests.answering import Reply, answer, send_reply
from app.requests.answers import JSON, accepted, content_type
from app.requests.brief import Reading
from app.requests.digits import Tree
from app.requests.fields import fields_of
from app.requests.operations import OPERATIONS
from app.requests.plans import Plan, Plans
from app.requests.points import Answers
from app.routes.protocol import described, document_reply, find_op, zeros
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
from app.routes.tesseract.leading_axes import points_of
from app.routes.tesseract.openapi import ENDPOINTS, JVP, VJP, Endpoint, endpoints, has_abstract_eval, openapi
from app.telemetry.counters import Counters
from app.tensors import fast_json, json
from app.tensors.casting import Document
from app.tensors.dtypes import COMPLEX, DTYPES
from app.tensors.fast_json import Parse
from app.tensors.layouts import Encoding
from app.tensors.strict_json import Body
from ops import Array, Op

PREFIX = "/tesseract/"
# Clients that accept anything get the first, which is exact and several times as fast.
FORMATS: Mapping[str, Encoding] = {"application/json+base64": "base64", JSON: "nested"}
_FIELDS = {"attrs": "inputs", "cotangents": "cotangent_vector", "tangents": "tangent_vector"}


def routes(engine: Engine, plans: Plans) -> APIRouter:
    """Return the routes of every op, under its prefix. An op has only the endpoints that can answer."""

    def make(name: str, op: Op) -> Answer:
        match name:
            case "openapi.json":
                return partial(_description, engine, op)
            case "health":
                return _healthy
            case "abstract_eval":
                return partial(_abstract_eval, engine, op)
            case _:
                endpoint = next(each for each in ENDPOINTS if each.name == name)
                return _Computation(engine, plans, op, endpoint, engine.counters(op.owner, endpoint.operation))

    async def unknown(request: Request) -> None:
        name, _, endpoint = request.path.removeprefix(PREFIX).partition("/")
        op = await find_op(engine, request, name)
        raise _unknown(op, endpoint, await described(engine, request, op, partial(names, op)))

    def route(name: str, label: str, method: str = "POST") -> RawRoute:
        kept = Kept(partial(make, name))

        async def handler(request: Request, op: str) -> Answer:
            found = await find_op(engine, request, op)
            known = names(found) if names.is_known(found) else None
            if known is None:
                known = await described(engine, request, found, partial(names, found))
            if name not in known:
                raise _unknown(found, name, known)
            return kept(found)

        def counters(op: str) -> Counters:
            owner = engine.owner(op)
            return engine.counters(owner if label in OPERATIONS else "", label if owner else "other")

        find = Find(counters, handler)
        return RawRoute(f"{PREFIX}{{op}}/{name}", find, methods=[method], dialect=dialect, include_in_schema=False)

    other = always(unknown, engine.counters("", "other"))
    router = APIRouter()
    router.routes += [*(route(endpoint.name, endpoint.operation) for endpoint in ENDPOINTS)]
    router.routes += [route("abstract_eval", "catalogue"), route("openapi.json", "catalogue", "GET")]
    router.routes.append(route("health", "health", "GET"))
    router.routes.append(RestRoute(f"{PREFIX}{{rest:path}}", other, dialect=dialect, include_in_schema=False))
    return router


@Kept
def names(op: Op) -> list[str]:
    """Return the names of the endpoints of an op."""
    return ["openapi.json", "health", *(["abstract_eval"] if has_abstract_eval(op) else []), *endpoints(op)]


def _unknown(op: Op, endpoint: str, known: list[str]) -> NotFound:
    return NotFound(f"unknown endpoint {endpoint!r} of op {op.name}; {did_you_mean(endpoint, known)}")


async def _healthy(request: Request) -> None:
    await request.read()  # the client sends a body with a GET
    await send_reply(document_reply({"status": "ok"}), request)


async def _description(engine: Engine, op: Op, request: Request) -> None:
    """Send the OpenAPI document of an op."""
    await request.read()  # the client sends a body with a GET
    await send_reply(await described(engine, request, op, lambda: document_reply(openapi(op))), request)


@dataclass(frozen=True)
class _Computation:
    """The handler of an endpoint that computes."""

    engine: Engine
    plans: Plans
    op: Op
    endpoint: Endpoint
    counters: Counters

    async def __call__(self, request: Request) -> None:
        read = partial(self._call, _encoding(request), request.parse)
        await answer(self.engine, request, read, await request.read(), self.op.owner)

    def _call(self, encoding: Encoding, parse: Parse, body: Body) -> Call:
        with Reading(self.op, self.endpoint.operation, len(body)):
            return self._read(encoding, _document(self.op, parse, body))

    def _read(self, encoding: Encoding, document: Document) -> Call:
        native = read(self.op, self.endpoint, document)
        plan = self.plans.plan(OPERATIONS[self.endpoint.operation], self.op, native.fields)
        finish, write = partial(_with_zeros, self.endpoint, plan, native), partial(_write, encoding)
        if (points := points_of(plan.spec.op, self.endpoint, native.fields)) is None:
            return plan.call(native.fields, write, self.counters, document.sources, finish=finish)

        def write_all(answers: Answers) -> Reply:
            return write(points.summed(answers.result))

        return plan.call_at_points(points.fields, write_all, self.counters, finish=finish, shape=points.shape)


def _encoding(request: Request) -> Encoding:
    """Return the encoding of the response's arrays; raises ``UnsupportedMediaType`` or ``NotAcceptable``."""
    content_type(request.headers, default=JSON)
    return FORMATS[accepted(request.headers, tuple(FORMATS))]


def _document(op: Op, parse: Parse, body: Body) -> Document:
    return fields_of(body, lambda body: parse(body, partial(places, op)))


def _with_zeros(endpoint: Endpoint, plan: Plan, native: NativeRequest, point: Point, result: Any) -> Tree:
    """Return the tree of the response, with zeros for absent derivatives: clients expect an array everywhere."""
    [tree] = plan.operation.tree(plan, result).values()
    if endpoint is VJP and plan.spec.op.is_complex:
        tree = {name: x if isinstance(x, Absent) else np.asarray(np.conj(x)) for name, x in tree.items()}
    if endpoint is JVP:
        tree = {name: tree[name] for name in native.of}
    # A response of apply leaves out the outputs that belong to inputs that are not sent.
    tree = {name: value for name, value in tree.items() if value is not Absent.NOT_SENT}
    slots = {slot.name: slot for slot in (point.op.inputs if endpoint is VJP else point.op.outputs)}
    columns = {slot.name: slot for slot in point.op.inputs}

    def leaf(value: Derivative, name: str, *rest: str) -> Array:
        return (
            zeros(point, (slots[name], *(columns[column] for column in rest))) if isinstance(value, Absent) else value
        )

    return _map_leaves(leaf, tree)


def _write(encoding: Encoding, tree: Tree) -> Reply:
    def leaf(array: Array, *path: str) -> Any:
        del path
        return encode(array, encoding)

    return document_reply(_map_leaves(leaf, tree))


def _map_leaves(leaf: Callable[..., Any], tree: Tree, *path: str) -> Any:
    if isinstance(tree, dict):
        return {name: _map_leaves(leaf, value, *path, name) for name, value in cast(dict[str, Tree], tree).items()}
    return leaf(tree, *path)


async def _abstract_eval(engine: Engine, op: Op, request: Request) -> None:
    """Infer the shapes and dtypes of an op's outputs from those of its inputs."""
    _encoding(request)
    body = await request.read()
    await send_reply(await described(engine, request, op, partial(_infer_shapes, engine, op, body)), request)


def _infer_shapes(engine: Engine, op: Op, body: Body) -> Reply:
    """Return the shapes and dtypes of the outputs; the values of the inputs are ignored."""
    fields = object_at(_document(op, fast_json.parse_bare, body), (), known=("inputs",), needed=("inputs",))
    inputs = read_inputs(op, _without_abstract(op, fields["inputs"]))
    run = {"device": engine.device(None), "max_elements": engine.max_elements}
    spec = bind_spec(inputs.op, inputs.attrs, inputs.dtype, mode=op.modes[0], **run)
    shapes = {name: _shape(value, spec.inputs.shown[name], name) for name, value in inputs.tensors.items()}
    side, output_shapes = spec.outputs, bind_shapes(spec, shapes).items()
    return document_reply(
        {name: {"shape": side.shown_shape(name, shape), "dtype": side.shown[name]} for name, shape in output_shapes}
    )


def _without_abstract(op: Op, inputs: Any) -> Any:
    """Return the inputs without number attributes that have a shape but no data: no output shape depends on them."""
    if not isinstance(inputs, dict):
        return inputs
    fields, abstract = cast(dict[str, Any], inputs), list[str]()
    for name in op.attrs.number_names():
        match fields.get(name):
            case {"shape": [], "dtype": _, **rest} if "data" not in rest:
                abstract.append(name)
            case _:
                pass
    return {name: value for name, value in fields.items() if name not in abstract}


def _shape(value: Any, dtype: str, name: str) -> tuple[int, ...]:
    """Return the shape of an input; its data may be missing."""
    loc = ("inputs", name)
    if not isinstance(value, dict):
        return decode(value, dtype, loc).shape
    known, needed = ("object_type", "shape", "dtype", "data"), ("shape", "dtype")
    array = object_at(cast(dict[str, Any], value), loc, known=known, needed=needed)
    refuse_object_type(array, loc)
    if dtype in COMPLEX:
        return (*json.read_shape(array["shape"], COMPLEX[dtype], (*loc, "shape")), 2)
    return json.read_shape(array["shape"], DTYPES[dtype], (*loc, "shape"))


def dialect(error: PullbackError, instance: str) -> RenderedError:
    """Render an error: one in the body as a list of entries, as pydantic does, any other as a sentence."""
    del instance
    if isinstance(error, Malformed) and not isinstance(error, WrongHost):
        text = clip(error.detail, MAX_TEXT)
        entry = {"type": "json_invalid", "loc": ["body"], "msg": text, "input": {}, "ctx": {"error": text}}
        return RenderedError(422, JSON, {"detail": [entry]})
    if isinstance(error, Unprocessable):
        return RenderedError(422, JSON, {"detail": [_detail(entry) for entry in error.entries[:MAX_ENTRIES]]})
    return RenderedError(error.status, JSON, {"detail": error.sentence()})


def _detail(entry: Entry) -> dict[str, Any]:
    document = entry.document()
    expected, got, loc = document["expected"], document["got"], document["loc"]
    if loc[:1] != ["header"]:
        loc = ["body", *(_FIELDS.get(part, part) for part in loc[:1]), *loc[1:]]
    text = entry.sentence()
    return {"type": "value_error", "loc": loc, "msg": text, "input": got, "ctx": {"expected": expected, "got": got}}
