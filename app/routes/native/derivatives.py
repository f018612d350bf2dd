"""POST /v1/ops/{op}/{operation}: a route for each operation, one handler for all, and the formats of bodies."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, TypeAlias, cast

import numpy as np

from app.autodiff.absent import OF_UNCERTAINTIES, Absent
from app.execution.calls import Call
from app.execution.engine import Engine
from app.http.request import Request
from app.http.route import RawRoute
from app.requests.answering import Reply, answer
from app.requests.answers import JSON, SHORT_ACCEPT, accepted, content_type
from app.requests.brief import Reading
from app.requests.digits import Tree
from app.requests.fields import fields_of
from app.requests.operations import OPERATIONS
from app.requests.plans import Fields, Operation, Plan, Plans
from app.requests.points import Answers
from app.requests.sparse import SparsityOf, sparse_work
from app.routes.native.descriptions import X, binary, computation, op_name
from app.routes.protocol import per_op
from app.telemetry.counters import Counters
from app.tensors import safetensors
from app.tensors.casting import Document
from app.tensors.fast_json import Parse, places
from app.tensors.layouts import Encoding, encode, lay_out
from app.tensors.strict_json import Body
from ops import Array, Op

UNCERTAINTY = "uncertainty"

Answer = Mapping[str, Tree]
Handler: TypeAlias = Callable[[Op, Counters], "FormatsHandler"]
"""Returns the handler of an op."""


@dataclass(frozen=True)
class Format:
    """A format: functions that return the fields of a body, and that write an answer with its other fields.

    ``read`` takes the parser of JSON. If ``is_binary``, the tensors are views of the body.
    """

    media_type: str
    read: Callable[[Body, Parse], Document]
    write: Callable[[Answer, Encoding, Mapping[str, Any]], Reply]
    is_binary: bool = False


def _read_json(body: Body, parse: Parse) -> Document:
    return fields_of(body, lambda body: parse(body, places))


def write_json(answer: Answer, encoding: Encoding, others: Mapping[str, Any] = MappingProxyType({})) -> Reply:
    """Return the response as JSON: absent derivatives are null, with their reasons under ``absent``."""
    missing = list[Absent]()
    document = _encode(answer, encoding, missing)
    layout = lay_out({**document, **(_reasons(answer) if missing else {}), **others})
    return Reply(JSON, layout.pieces(), layout=layout)


def _write_safetensors(answer: Answer, encoding: Encoding, others: Mapping[str, Any]) -> Reply:
    """Return the response as tensors named by their paths; the metadata has the reasons for absent derivatives."""
    del encoding
    layout = safetensors.lay_out(dict(_tensors(answer)), {**_reasons(answer), **others})
    return Reply(safetensors.MEDIA_TYPE, layout.pieces(), layout=layout)


def _write_safetensors_or_json(answer: Answer, encoding: Encoding, others: Mapping[str, Any]) -> Reply:
    """Return the response as safetensors, or as JSON if it has a dtype that safetensors lacks."""
    if all(safetensors.has_name(array.dtype) for _, array in _tensors(answer)):
        return _write_safetensors(answer, encoding, others)
    return write_json(answer, "base64", others)


def _encode(tree: Any, encoding: Encoding, missing: list[Absent]) -> Any:
    """Return a tree with its tensors encoded; append absent derivatives to ``missing``."""
    if isinstance(tree, dict):
        document = dict[str, Any]()
        for name, value in cast(dict[str, Tree], tree).items():
            document[name] = _encode(value, encoding, missing)
        return document
    if isinstance(tree, list):
        return [_encode(value, encoding, missing) for value in cast(list[Tree], tree)]
    if isinstance(tree, Absent):
        missing.append(tree)
        return None
    if isinstance(tree, tuple):
        return list(cast(tuple[int, ...], tree))
    return encode(tree, encoding)


def leaves(tree: Any, *path: str) -> Iterator[tuple[str, Array | Absent]]:
    """Yield the tensors of a tree, and what is absent, with their paths; a shape is a tensor too.

    The items of a list are orders, numbered from 1.
    """
    if isinstance(tree, dict):
        for name, value in cast(dict[str, Tree], tree).items():
            yield from leaves(value, *path, name)
    elif isinstance(tree, list):
        for order, value in enumerate(cast(list[Tree], tree), 1):
            yield from leaves(value, *path, str(order))
    else:
        yield "/".join(path), tree if isinstance(tree, Absent) else np.asarray(tree)


def _tensors(tree: Any) -> Iterator[tuple[str, Array]]:
    """Yield the tensors of a tree with their paths."""
    for path, leaf in leaves(tree):
        if not isinstance(leaf, Absent):
            yield path, leaf


def _reasons(answer: Answer) -> dict[str, Any]:
    """Return the fields of a response with the reasons for absent results and uncertainties, if there are any.

    In an answer with outputs and derivatives, those are the reasons of the derivatives, which come last.
    """
    fields = dict[str, Any]()
    for name, value in answer.items():
        if name == UNCERTAINTY:
            fields["no_uncertainty"] = _reason_tree(value, OF_UNCERTAINTIES)
        else:
            fields["absent"] = _reason_tree(value)
    return {name: reasons for name, reasons in fields.items() if reasons}


def _reason_tree(tree: Tree, of: Sequence[Absent] = tuple(Absent)) -> Any:
    """Return some reasons in a tree, without the branches that have none; lists keep their length."""
    if isinstance(tree, dict):
        branches = {name: _reason_tree(value, of) for name, value in cast(dict[str, Tree], tree).items()}
        return {name: reasons for name, reasons in branches.items() if reasons}
    if isinstance(tree, list):
        levels = [_reason_tree(value, of) for value in cast(list[Tree], tree)]
        return levels if any(levels) else []
    return str(tree) if isinstance(tree, Absent) and tree in of else ""


FORMATS: Mapping[str, Format] = {
    each.media_type: each
    for each in (
        Format(JSON, _read_json, write_json),
        Format(safetensors.MEDIA_TYPE, lambda body, _: safetensors.parse(body), _write_safetensors, is_binary=True),
    )
}
MEDIA_TYPES = tuple(FORMATS)


def operation_routes(engine: Engine, plans: Plans) -> list[RawRoute]:
    """Return the route of each operation."""
    return [_route(engine, plans, operation) for operation in OPERATIONS.values()]


def _route(engine: Engine, plans: Plans, operation: Operation) -> RawRoute:
    def handler(op: Op, counters: Counters) -> OperationHandler:
        return OperationHandler(engine, counters, op.owner, plans, op, operation)

    return operation_route(engine, operation, handler)


def operation_route(engine: Engine, operation: Operation, handler: Handler, *, may_be_job: bool = True) -> RawRoute:
    """Return the route of an operation, whose requests the ``handler`` of their op answers."""
    fields = [name for name in ("inputs", "tangents", "vectors") if name in operation.request.model_fields]
    example = {name: {"x": X} for name in fields}
    return computation(
        f"/v1/ops/{{op}}/{operation.name}",
        per_op(engine, operation.name, handler),
        operation.request,
        operation.answer,
        example,
        **binary(operation.answer, example),
        parameters={"op": op_name([*engine.registry.ops])},
        tags=["derivatives"],
        summary=operation.summary,
        may_be_job=may_be_job,
    )


@dataclass(frozen=True)
class FormatsHandler(ABC):
    """A handler of requests whose bodies and answers have one of the ``FORMATS``."""

    engine: Engine
    counters: Counters
    owner: str

    async def __call__(self, request: Request) -> None:
        """Answer a request; raises a ``PullbackError`` if it is invalid or fails."""
        source, target = formats_of(request)
        body, call = await request.read(is_binary=source.is_binary), partial(self.call, source, target, request)
        is_binary = source.is_binary and target.is_binary
        await answer(self.engine, request, call, body, self.owner, is_binary=is_binary)

    @abstractmethod
    def call(self, source: Format, target: Format, request: Request, body: Body) -> Call:
        """Return the call of a request, whose body has the first format, and its answer the second."""


@dataclass(frozen=True)
class OperationHandler(FormatsHandler):
    """The handler of one operation on one op."""

    plans: Plans
    op: Op
    operation: Operation

    def call(self, source: Format, target: Format, request: Request, body: Body) -> Call:
        """Return the call of a request."""
        with Reading(self.op, self.operation.name, len(body)):
            fields = source.read(body, request.parse)
            plan = self.plans.plan(self.operation, self.op, fields)
            if plan.is_sparse:
                return self._sparse_call(plan, fields, target, request.key)
            write = partial(_write, target, plan)
            return plan.call(fields, write, self.counters, fields.sources, form=target.media_type)

    def _sparse_call(self, plan: Plan, fields: Fields, target: Format, key: str) -> Call:
        work = sparse_work(plan, fields, SparsityOf(self.engine.sparsities, key))

        def write(result: tuple[Answer, str | None]) -> Reply:
            blocks, name = result
            return target.write(blocks, plan.request.encoding, {"sparsity": name})

        return Call(plan.owner, plan.spec, work, True, write, self.counters)


def _write(target: Format, plan: Plan, result: Any) -> Reply:
    others = dict[str, Any]()
    if isinstance(result, Answers):
        others, result = {"failed": result.document()} if plan.request.partial else {}, result.result
    uncertainty = dict[str, Tree]()
    if plan.request.digits:
        result, uncertainty[UNCERTAINTY] = result
    return target.write(plan.operation.tree(plan, result) | uncertainty, plan.request.encoding, others)


def formats_of(request: Request) -> tuple[Format, Format]:
    """Return the formats of the body and of the response; raises ``UnsupportedMediaType`` or ``NotAcceptable``."""
    kind, accept = request.headers.get(b"content-type", b""), request.headers.get(b"accept", b"")
    return (_known_formats if len(kind) + len(accept) <= SHORT_ACCEPT else _formats)(kind, accept)


def _formats(kind: bytes, accept: bytes) -> tuple[Format, Format]:
    """Return the formats of the body and of the response for these headers."""
    headers = {b"content-type": kind, b"accept": accept}
    source, target = FORMATS[content_type(headers, MEDIA_TYPES)], FORMATS[accepted(headers, MEDIA_TYPES)]
    if target.is_binary and b"json" in accept:
        target = replace(target, write=_write_safetensors_or_json)
    return source, target


# A client sends the same headers each time.
_known_formats = lru_cache(maxsize=256)(_formats)
