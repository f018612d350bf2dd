"""POST /v1/ops/{op}/{operation}: every operation, behind one ASGI function.

FastAPI has the same operations in its OpenAPI document (``app.routes.openapi``), but the requests do not go through it:
a plain function in front of it answers twice as many of them.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from starlette.types import ASGIApp, Receive, Scope, Send

from app.binding import bind
from app.body import ClientGone, aligned, read_body, read_into, while_client_waits
from app.call import Call
from app.engine import Engine
from app.errors import DeadlinePassed, MethodNotAllowed, NotFound, near
from app.execution import Slot
from app.limits import charge_answer, deadline_of
from app.routes import wire
from app.routes.formats import FORMATS, Format, Reply
from app.routes.operations import OPERATIONS, Operation, Tree, Work
from app.routes.reading import accepted, brought, read
from app.straight import Straight, straight_of
from app.tensors.document import Body
from app.tensors.json import Encoding
from app.tensors.safetensors import ALIGNMENT, decode
from ops import Op

# Beyond it, reading and writing tensors would hold the event loop for milliseconds, and the work is long.
SMALL_BODY = 1 << 16
# Multiply-adds of short work, which takes milliseconds.
SHORT_COST = 1 << 24
# An answer goes out in pieces of so many bytes, and all of it within so many seconds.
PIECE, SEND_S = 1 << 18, 60.0
MEDIA_TYPES = tuple(FORMATS)


def operations(fallback: ASGIApp, engine: Engine) -> ASGIApp:
    """Return an app that answers the operations itself and leaves every other path to ``fallback``.

    Raises, for what stands around it to render, every ``PullbackError`` of a request that is wrong.
    """

    async def dispatched(scope: Scope, receive: Receive, send: Send) -> None:
        match scope["path"].split("/") if scope["type"] == "http" else ():
            case ["", "v1", "ops", op, operation]:
                reply = await _answered(engine, op, operation, scope, receive)
                if reply.size > PIECE:
                    charge_answer(scope, reply.size)
                await _send(reply, send, straight_of(scope))
            case _:
                await fallback(scope, receive, send)

    return dispatched


async def _answered(engine: Engine, op_name: str, operation_name: str, scope: Scope, receive: Receive) -> Reply:
    operation = OPERATIONS.get(operation_name)
    if operation is None:
        raise NotFound(f"there is no operation {operation_name!r}; expected {near(operation_name, OPERATIONS)}")
    if scope["method"] != "POST":
        detail = f"expected POST, got {scope['method']}"
        raise MethodNotAllowed(detail, headers={"Allow": "POST"})
    op = engine.op(op_name)
    headers = dict(scope["headers"])
    source, target = FORMATS[brought(headers, MEDIA_TYPES)], FORMATS[accepted(headers, MEDIA_TYPES)]
    asked = _Asked(await _body(headers, scope, receive, source), source, target)
    deadline = deadline_of(scope)
    try:
        async with asyncio.timeout_at(deadline):
            with while_client_waits(receive):
                return await _computed(engine, operation, op, asked, deadline)
    except TimeoutError:
        raise DeadlinePassed("expected an answer before the deadline; ask for less, or for more time") from None


async def _body(headers: Mapping[bytes, bytes], scope: Scope, receive: Receive, source: Format) -> Body:
    """Return the body; what is large, or must be aligned, in memory that is there before it comes."""
    size, straight = int(headers.get(b"content-length", b"0")), straight_of(scope)
    if source.is_binary and size:
        body = aligned(size, ALIGNMENT)
    elif straight:
        body = bytearray(size)
    else:
        return await read_body(receive)
    await read_into(memoryview(body), receive, straight)
    return body


@dataclass(frozen=True)
class _Asked:
    """A body, the format that it came in, and the one to answer in."""

    body: Body
    source: Format
    target: Format


async def _computed(engine: Engine, operation: Operation, op: Op, asked: _Asked, deadline: float) -> Reply:
    small, target = len(asked.body) <= SMALL_BODY, asked.target
    prepare = partial(_prepare, engine, operation, op, asked)
    prepared = prepare() if small else await asyncio.to_thread(prepare)
    brief = small and not prepared.is_long
    tree = await _run(engine, prepared.work, "short" if brief else "long", deadline)
    if brief:
        return target.reply(tree, prepared.encoding)
    return await asyncio.to_thread(target.reply, tree, prepared.encoding)


async def _run(engine: Engine, work: Work, slot: Slot, deadline: float) -> dict[str, Tree]:
    if isinstance(work, Call):
        return await engine.batches.run(work, slot=slot, deadline=deadline)
    return await engine.lane.run(work, slot=slot, deadline=deadline)


async def _send(reply: Reply, send: Send, straight: Straight | None) -> None:
    """Send an answer in pieces, each when the client has taken those before: one that reads nothing holds little."""
    headers = [(b"content-type", reply.media_type.encode()), (b"content-length", b"%d" % reply.size)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    try:
        async with asyncio.timeout(SEND_S):
            if straight and reply.size > PIECE:
                await _send_straight(reply, send, straight)
                return
            left = reply.size
            for piece in reply.cut(PIECE):
                left -= len(piece)
                await send({"type": "http.response.body", "body": piece, "more_body": left > 0})
    except TimeoutError:
        raise ClientGone from None


async def _send_straight(reply: Reply, send: Send, straight: Straight) -> None:
    """Send the pieces as they lie in memory, which the request holds until the client has taken them."""
    with straight.cut_off():
        for piece in reply.pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await straight.taken()
    await send({"type": "http.response.body"})


@dataclass(frozen=True)
class _Prepared:
    """The work that a body asks for, whether it is long, and how to write what comes of it."""

    work: Work
    is_long: bool
    encoding: Encoding


def _prepare(engine: Engine, operation: Operation, op: Op, asked: _Asked) -> _Prepared:
    request = read(asked.body, operation.request, asked.source.parse)
    dtype, batched = request.dtype, isinstance(request, wire.BatchedRequest) and request.batched
    # Of many directions XLA would compile every number.
    mode = request.mode or ("graph" if batched else engine.default_mode(op, dtype, request.device))
    device = engine.device(request.device)
    point = bind(
        op, request.inputs, request.attrs, dtype, decode, mode=mode, device=device, max_elements=engine.max_elements
    )
    # XLA compiles for seconds, and short work should not have to wait for that.
    compiles = mode == "xla" and op.batching != "elementwise"
    is_long = operation.is_long or batched or compiles or point.cost > SHORT_COST
    return _Prepared(operation.work(request, point), is_long, request.encoding)
