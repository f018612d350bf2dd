"""POST /v1/ops/{op}/{operation}: every operation, in one table and behind one ASGI function.

FastAPI has the same operations in its OpenAPI document (``app.routes.openapi`` reads this table), but the requests do
not go through it: a plain function in front of it answers twice as many of them.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, cast

from pydantic import ValidationError
from starlette.types import ASGIApp, Receive, Scope, Send

from app import derivatives, matrices
from app.binding import Point, bind, bind_directions, bind_names
from app.body import ClientGone, read_body, while_client_waits
from app.derivatives import Absent
from app.errors import (
    DeadlinePassed,
    MethodNotAllowed,
    NotAcceptable,
    NotFound,
    UnsupportedMediaType,
    near,
    unprocessable,
    wrong,
)
from app.execution import Checkpoint, Lane
from app.limits import deadline_of
from app.modes import default_mode
from app.routes import wire
from app.tensors.casting import describe
from app.tensors.json import Encoding, decode, dumps, encode, parse
from app.validation import entries
from ops import Op, Registry

Tree: TypeAlias = Any
"""An answer before it is written: objects and lists of arrays and ``Absent``."""
Work: TypeAlias = Callable[[Checkpoint], dict[str, Tree]]

# Beyond it, reading and writing tensors would hold the event loop for milliseconds, and the work is long.
SMALL_BODY = 1 << 16
# Multiply-adds of short work, which takes milliseconds.
SHORT_COST = 1 << 24
# An answer goes out in pieces of so many bytes, and all of it within so many seconds.
PIECE, SEND_S = 1 << 18, 60.0


@dataclass(frozen=True)
class Operation:
    """One operation: its models, and how a request at a point becomes work for the lane."""

    name: str
    summary: str
    request: type[wire.Request]
    answer: type[wire.Answer]
    prepare: Callable[[Any, Point], Work]
    is_long: bool = False


@dataclass(frozen=True)
class Engine:
    """What the operations need of the service."""

    registry: Registry
    lane: Lane
    devices: Mapping[str, str]
    default_device: str
    max_elements: int

    def op(self, name: str) -> Op:
        """Return the op, or raise ``NotFound`` with near names, or with why it is unavailable."""
        found = self.registry.ops.get(name)
        if found is None:
            for broken in self.registry.unavailable:
                if broken.name == name:
                    raise NotFound(f"op {name} is unavailable: {broken.reason}")
            raise NotFound(f"there is no op {name!r}; expected {near(name, self.registry.ops)}")
        return found

    def device(self, name: str | None) -> str:
        """Return TensorFlow's name of a device, or raise ``Unprocessable``."""
        if name is not None and name not in self.devices:
            expected = f"one of {', '.join(self.devices)}"
            raise wrong(("device",), "there is no such device", expected=expected, got=name)
        return self.devices[name or self.default_device]


def _forward(request: wire.ForwardRequest, point: Point) -> Work:
    del request
    return lambda checkpoint: {"outputs": derivatives.forward(point)}


def _gradients(request: wire.GradientsRequest, point: Point) -> Work:
    wrt = bind_names(request.wrt, point.op.inputs, "wrt")
    cotangents = bind_directions(point, request.cotangents, point.op.outputs, decode, "cotangents")

    def work(checkpoint: Checkpoint) -> dict[str, Tree]:
        del checkpoint
        outputs, found = derivatives.gradients(point, wrt, cotangents, request.order)
        return {"outputs": outputs, "gradients": found}

    return work


def _vjp(request: wire.VjpRequest, point: Point) -> Work:
    wrt = bind_names(request.wrt, point.op.inputs, "wrt")
    cotangents = bind_directions(point, request.cotangents, point.op.outputs, decode, "cotangents")

    def work(checkpoint: Checkpoint) -> dict[str, Tree]:
        del checkpoint
        outputs, found = derivatives.vjp(point, wrt, cotangents, batched=request.batched, outputs=request.outputs)
        return {"outputs": outputs, "gradients": found} if request.outputs else {"gradients": found}

    return work


def _jvp(request: wire.JvpRequest, point: Point) -> Work:
    tangents = bind_directions(point, request.tangents, point.op.inputs, decode, "tangents")
    return lambda checkpoint: {"tangents": derivatives.jvp(point, tangents or {}, batched=request.batched)}


def _jacobian(request: wire.JacobianRequest, point: Point) -> Work:
    wrt = bind_names(request.wrt, point.op.inputs, "wrt")
    of = bind_names(request.of, point.op.outputs, "of")
    return lambda checkpoint: {"jacobian": matrices.jacobian(point, of, wrt, checkpoint)}


def _hvp(request: wire.HvpRequest, point: Point) -> Work:
    wrt = bind_names(request.wrt, point.op.inputs, "wrt")
    cotangents = bind_directions(point, request.cotangents, point.op.outputs, decode, "cotangents")
    vectors = bind_directions(point, request.vectors, point.op.inputs, decode, "vectors")

    def work(checkpoint: Checkpoint) -> dict[str, Tree]:
        del checkpoint
        return {"products": derivatives.hvp(point, wrt, cotangents, vectors or {}, batched=request.batched)}

    return work


def _hessian(request: wire.HessianRequest, point: Point) -> Work:
    wrt = bind_names(request.wrt, point.op.inputs, "wrt")
    cotangents = bind_directions(point, request.cotangents, point.op.outputs, decode, "cotangents")
    if request.diagonal:
        return lambda checkpoint: {"diagonal": matrices.hessian_diagonal(point, wrt, cotangents)}
    return lambda checkpoint: {"hessian": matrices.hessian(point, wrt, cotangents, checkpoint)}


OPERATIONS: Mapping[str, Operation] = {
    operation.name: operation
    for operation in (
        Operation("forward", "The value of an op", wire.ForwardRequest, wire.ForwardAnswer, _forward),
        Operation(
            "gradients",
            "Gradients of order 1 to 4: each of the sum of the one before",
            wire.GradientsRequest,
            wire.GradientsAnswer,
            _gradients,
        ),
        Operation("vjp", "Pull cotangents back to the inputs", wire.VjpRequest, wire.VjpAnswer, _vjp),
        Operation("jvp", "Push tangents forward to the outputs", wire.JvpRequest, wire.JvpAnswer, _jvp),
        Operation(
            "jacobian",
            "Every output by every input",
            wire.JacobianRequest,
            wire.JacobianAnswer,
            _jacobian,
            is_long=True,
        ),
        Operation("hvp", "The Hessian's transpose times vectors", wire.HvpRequest, wire.HvpAnswer, _hvp),
        Operation(
            "hessian", "The derivative of the vjp", wire.HessianRequest, wire.HessianAnswer, _hessian, is_long=True
        ),
    )
}


def operations(fallback: ASGIApp, engine: Engine) -> ASGIApp:
    """Return an app that answers the operations itself and leaves every other path to ``fallback``.

    Raises, for what stands around it to render, every ``PullbackError`` of a request that is wrong.
    """

    async def dispatched(scope: Scope, receive: Receive, send: Send) -> None:
        match scope["path"].split("/") if scope["type"] == "http" else ():
            case ["", "v1", "ops", op, operation]:
                await _send(await _answered(engine, op, operation, scope, receive), send)
            case _:
                await fallback(scope, receive, send)

    return dispatched


async def _answered(engine: Engine, op_name: str, operation_name: str, scope: Scope, receive: Receive) -> bytes:
    operation = OPERATIONS.get(operation_name)
    if operation is None:
        raise NotFound(f"there is no operation {operation_name!r}; expected {near(operation_name, OPERATIONS)}")
    if scope["method"] != "POST":
        detail = f"expected POST, got {scope['method']}"
        raise MethodNotAllowed(detail, headers={"Allow": "POST"})
    op = engine.op(op_name)
    _check_media_types(dict(scope["headers"]))
    body = await read_body(receive)
    deadline = deadline_of(scope)
    try:
        async with asyncio.timeout_at(deadline):
            with while_client_waits(receive):
                return await _computed(engine, operation, op, body, deadline)
    except TimeoutError:
        raise DeadlinePassed("expected an answer before the deadline; ask for less, or for more time") from None


async def _computed(engine: Engine, operation: Operation, op: Op, body: bytes | bytearray, deadline: float) -> bytes:
    small = len(body) <= SMALL_BODY
    prepare = partial(_prepare, engine, operation, op, body)
    prepared = prepare() if small else await asyncio.to_thread(prepare)
    if small and not prepared.is_long:
        return _written(await engine.lane.run(prepared.work, slot="short", deadline=deadline), prepared.encoding)
    tree = await engine.lane.run(prepared.work, slot="long", deadline=deadline)
    return await asyncio.to_thread(_written, tree, prepared.encoding)


async def _send(body: bytes, send: Send) -> None:
    """Send an answer in pieces, each when the client has taken those before: one that reads nothing holds little."""
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    pieces = memoryview(body)
    try:
        async with asyncio.timeout(SEND_S):
            for start in range(0, len(body), PIECE):
                piece, more = bytes(pieces[start : start + PIECE]), start + PIECE < len(body)
                await send({"type": "http.response.body", "body": piece, "more_body": more})
    except TimeoutError:
        raise ClientGone from None


def _check_media_types(headers: Mapping[bytes, bytes]) -> None:
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind != b"application/json":
        got = kind.decode("latin-1") or "none"
        raise UnsupportedMediaType(f"expected Content-Type: application/json, got {got}")
    accepted = headers.get(b"accept", b"").decode("latin-1").lower()
    if accepted.strip() and not any(_is_json(part) for part in accepted.split(",")):
        raise NotAcceptable(f"this answers application/json; the request accepts {accepted}")


def _is_json(accepted: str) -> bool:
    """Tell whether one part of an Accept header takes JSON: ``*/*;q=0.8`` does, ``application/json;q=0`` does not."""
    kind, *parameters = (part.strip().replace(" ", "") for part in accepted.split(";"))
    refused = any(re.fullmatch(r"q=0(\.0*)?", parameter) for parameter in parameters)
    return kind in ("application/json", "application/*", "*/*") and not refused


@dataclass(frozen=True)
class _Prepared:
    """The work that a body asks for, whether it is long, and how to write what comes of it."""

    work: Work
    is_long: bool
    encoding: Encoding


def _prepare(engine: Engine, operation: Operation, op: Op, body: bytes | bytearray) -> _Prepared:
    document = parse(body)
    if not isinstance(document, dict):
        raise wrong((), "not an object", expected='an object such as {"inputs": {...}}', got=describe(document))
    if len(fields := cast(dict[str, Any], document)) > wire.MAX_NAMES:
        expected = f"at most {wire.MAX_NAMES} fields"
        raise wrong((), "too many fields", expected=expected, got=str(len(fields)))
    try:
        request = operation.request.model_validate(document)
    except ValidationError as error:
        raise unprocessable(entries(error.errors(include_url=False), operation.request.model_fields)) from None
    dtype = request.dtype
    mode = request.mode or default_mode(op.name, operation.name, dtype or op.dtypes[0])
    device = engine.device(request.device)
    point = bind(
        op, request.inputs, request.attrs, dtype, decode, mode=mode, device=device, max_elements=engine.max_elements
    )
    # XLA compiles for seconds, and short work should not have to wait for that.
    is_long = operation.is_long or mode == "xla" or point.cost > SHORT_COST
    return _Prepared(operation.prepare(request, point), is_long, request.encoding)


def _written(tree: dict[str, Tree], encoding: Encoding) -> bytes:
    """Return the answer as JSON: tensors encoded, what is absent as null, with its reason under ``absent``."""
    document = {name: _encoded(value, encoding) for name, value in tree.items()}
    for value in tree.values():
        if absent := _absent(value):
            document["absent"] = absent
    return dumps(document)


def _encoded(tree: Tree, encoding: Encoding) -> Any:
    if isinstance(tree, dict):
        return {name: _encoded(value, encoding) for name, value in cast(dict[str, Tree], tree).items()}
    if isinstance(tree, list):
        return [_encoded(value, encoding) for value in cast(list[Tree], tree)]
    return None if isinstance(tree, Absent) else encode(tree, encoding)


def _absent(tree: Tree) -> Any:
    """Return the reasons in a tree, in its shape, without the branches that have none; lists keep their places."""
    if isinstance(tree, dict):
        found = {name: _absent(value) for name, value in cast(dict[str, Tree], tree).items()}
        return {name: reasons for name, reasons in found.items() if reasons}
    if isinstance(tree, list):
        levels = [_absent(value) for value in cast(list[Tree], tree)]
        return levels if any(levels) else []
    return str(tree) if isinstance(tree, Absent) else ""
