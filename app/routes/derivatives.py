"""POST /v1/ops/{op}/{operation}: every operation, behind one ASGI function.

FastAPI has the same operations in its OpenAPI document (``app.routes.openapi``), but the requests do not go through it:
a plain function in front of it answers twice as many of them.
"""

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from starlette.types import ASGIApp, Receive, Scope, Send

from app.binding import bind
from app.body import ClientGone, read_body, while_client_waits
from app.call import Call
from app.derivatives import Absent
from app.engine import Engine
from app.errors import DeadlinePassed, MethodNotAllowed, NotFound, near
from app.execution import Slot
from app.limits import charge_answer, deadline_of
from app.modes import default_mode
from app.routes import wire
from app.routes.operations import OPERATIONS, Operation, Tree, Work
from app.routes.reading import accepted, read
from app.tensors.json import Encoding, decode, dumps, encode
from ops import Op

# Beyond it, reading and writing tensors would hold the event loop for milliseconds, and the work is long.
SMALL_BODY = 1 << 16
# Multiply-adds of short work, which takes milliseconds.
SHORT_COST = 1 << 24
# An answer goes out in pieces of so many bytes, and all of it within so many seconds.
PIECE, SEND_S = 1 << 18, 60.0


def operations(fallback: ASGIApp, engine: Engine) -> ASGIApp:
    """Return an app that answers the operations itself and leaves every other path to ``fallback``.

    Raises, for what stands around it to render, every ``PullbackError`` of a request that is wrong.
    """

    async def dispatched(scope: Scope, receive: Receive, send: Send) -> None:
        match scope["path"].split("/") if scope["type"] == "http" else ():
            case ["", "v1", "ops", op, operation]:
                body = await _answered(engine, op, operation, scope, receive)
                if len(body) > PIECE:
                    charge_answer(scope, len(body))
                await _send(body, send)
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
    accepted(dict(scope["headers"]))
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
    brief = small and not prepared.is_long
    tree = await _run(engine, prepared.work, "short" if brief else "long", deadline)
    return _written(tree, prepared.encoding) if brief else await asyncio.to_thread(_written, tree, prepared.encoding)


async def _run(engine: Engine, work: Work, slot: Slot, deadline: float) -> dict[str, Tree]:
    if isinstance(work, Call):
        return await engine.batches.run(work, slot=slot, deadline=deadline)
    return await engine.lane.run(work, slot=slot, deadline=deadline)


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


@dataclass(frozen=True)
class _Prepared:
    """The work that a body asks for, whether it is long, and how to write what comes of it."""

    work: Work
    is_long: bool
    encoding: Encoding


def _prepare(engine: Engine, operation: Operation, op: Op, body: bytes | bytearray) -> _Prepared:
    request = read(body, operation.request)
    dtype = request.dtype
    mode = request.mode or default_mode(op.name, operation.name, dtype or op.dtypes[0])
    device = engine.device(request.device)
    point = bind(
        op, request.inputs, request.attrs, dtype, decode, mode=mode, device=device, max_elements=engine.max_elements
    )
    # XLA compiles for seconds, and short work should not have to wait for that.
    batched = isinstance(request, wire.BatchedRequest) and request.batched
    is_long = operation.is_long or batched or mode == "xla" or point.cost > SHORT_COST
    return _Prepared(operation.work(request, point), is_long, request.encoding)


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
