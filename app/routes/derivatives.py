"""POST /v1/ops/{op}/{operation}: every operation, behind one ASGI function.

FastAPI has the same operations in its OpenAPI document (``app.routes.openapi``), but the requests do not go through it:
a plain function in front of it answers twice as many of them.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from starlette.types import ASGIApp, Receive, Scope, Send

from app.body import read_body, read_into
from app.call import Call
from app.connection import is_alone
from app.engine import Engine
from app.errors import MethodNotAllowed, NotFound, near
from app.execution import Checkpoint, Slot
from app.limits import charge_answer, clock_of
from app.routes.formats import FORMATS, Format, Reply
from app.routes.operations import OPERATIONS, Operation, Work
from app.routes.plans import Plan, Plans, Task
from app.routes.reading import accepted, brought, fields_of
from app.straight import Straight, straight_of
from app.tally import Tally
from app.tensors.document import Body
from app.tensors.memory import aligned
from ops import Op

# Beyond it, reading and writing tensors would hold the event loop for milliseconds, and the work is long.
SMALL_BODY = 1 << 16
# An answer goes out in pieces of so many bytes.
PIECE = 1 << 18
MEDIA_TYPES = tuple(FORMATS)


def operations(fallback: ASGIApp, engine: Engine) -> ASGIApp:
    """Return an app that answers the operations itself and leaves every other path to ``fallback``.

    Raises, for what stands around it to render, every ``PullbackError`` of a request that is wrong.
    """
    plans = Plans(engine)

    async def dispatched(scope: Scope, receive: Receive, send: Send) -> None:
        match scope["path"].split("/") if scope["type"] == "http" else ():
            case ["", "v1", "ops", op, operation]:
                asked = await _asked(engine, op, operation, scope, receive)
                reply = await _computed(engine, plans, asked, scope)
                if reply.size > PIECE:
                    charge_answer(scope, reply.size)
                clock_of(scope).sending()
                await _send(reply, send, straight_of(scope))
            case _:
                await fallback(scope, receive, send)

    return dispatched


class _Asked(NamedTuple):
    """What is asked of which op, and until when: a body, the format that it came in, and the one to answer in."""

    operation: Operation
    op: Op
    body: Body
    source: Format
    target: Format
    tally: Tally
    deadline: float


async def _asked(engine: Engine, op_name: str, operation_name: str, scope: Scope, receive: Receive) -> _Asked:
    operation = OPERATIONS.get(operation_name)
    if operation is None:
        raise NotFound(f"there is no operation {operation_name!r}; expected {near(operation_name, OPERATIONS)}")
    if scope["method"] != "POST":
        detail = f"expected POST, got {scope['method']}"
        raise MethodNotAllowed(detail, headers={"Allow": "POST"})
    op = engine.op(op_name)
    headers = dict(scope["headers"])
    source, target = FORMATS[brought(headers, MEDIA_TYPES)], FORMATS[accepted(headers, MEDIA_TYPES)]
    body = await _body(headers, scope, receive, source)
    tally, clock = engine.tally(op_name, operation_name), clock_of(scope)
    clock.working()
    return _Asked(operation, op, body, source, target, tally, clock.deadline)


async def _body(headers: Mapping[bytes, bytes], scope: Scope, receive: Receive, source: Format) -> Body:
    """Return the body; what is large, or must be aligned, in memory that is there before it comes."""
    size, straight = int(headers.get(b"content-length", b"0")), straight_of(scope)
    if source.is_binary and size:
        body = aligned(size).data
    elif straight:
        body = bytearray(size)
    else:
        return await read_body(receive)
    await read_into(memoryview(body), receive, straight)
    return body


async def _computed(engine: Engine, plans: Plans, asked: _Asked, scope: Scope) -> Reply:
    timed, target = asked.tally.timed, asked.target
    if len(asked.body) > SMALL_BODY and asked.source.is_binary and target.is_binary:
        return await _at_one_go(engine, plans, asked)
    if len(asked.body) > SMALL_BODY:
        plan, task = await asyncio.to_thread(timed, "parse", _planned, plans, asked)
        found = await _run(engine, asked, task.work, "long")
        return await asyncio.to_thread(timed, "serialise", _written, plan, found, target)
    plan, task = timed("parse", _planned, plans, asked)
    if task.is_long:
        found = await _run(engine, asked, task.work, "long")
        return await asyncio.to_thread(timed, "serialise", _written, plan, found, target)
    if isinstance(task.work, Call) and is_alone(scope) and engine.batches.is_brief(task.work):
        found = engine.batches.run_at_once(task.work, asked.tally)
    else:
        found = await _run(engine, asked, task.work, "short")
    return timed("serialise", _written, plan, found, target)


async def _at_one_go(engine: Engine, plans: Plans, asked: _Asked) -> Reply:
    """Read, compute and write on the lane: where tensors lie as they are wanted, only changes of threads would cost."""

    def work(checkpoint: Checkpoint) -> Reply:
        plan, task = asked.tally.timed("parse", _planned, plans, asked)
        found = task.work.run() if isinstance(task.work, Call) else task.work(checkpoint)
        return asked.tally.timed("serialise", _written, plan, found, asked.target)

    return await engine.lane.run(asked.tally.queued(work), slot="long", deadline=asked.deadline, owner=asked.op.name)


def _planned(plans: Plans, asked: _Asked) -> tuple[Plan, Task]:
    fields = fields_of(asked.body, asked.source.parse)
    plan = plans.plan(asked.operation, asked.op, fields)
    return plan, plan.task(fields)


def _written(plan: Plan, found: Any, target: Format) -> Reply:
    return target.reply(plan.operation.tree(plan.asked, found), plan.encoding)


async def _run(engine: Engine, asked: _Asked, work: Work, slot: Slot) -> Any:
    if isinstance(work, Call):
        return await engine.batches.run(work, slot=slot, deadline=asked.deadline, tally=asked.tally)
    return await engine.lane.run(asked.tally.queued(work), slot=slot, deadline=asked.deadline, owner=asked.op.name)


async def _send(reply: Reply, send: Send, straight: Straight | None) -> None:
    """Send an answer in pieces, each when the client has taken those before: one that reads nothing holds little."""
    headers = [(b"content-type", reply.media_type.encode()), (b"content-length", b"%d" % reply.size)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    if straight and reply.size > PIECE:
        await _send_straight(reply, send, straight)
        return
    left = reply.size
    for piece in reply.cut(PIECE):
        left -= len(piece)
        await send({"type": "http.response.body", "body": piece, "more_body": left > 0})


async def _send_straight(reply: Reply, send: Send, straight: Straight) -> None:
    """Send the pieces as they lie in memory, which the request holds until the client has taken them."""
    with straight.cut_off():
        for piece in reply.pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await straight.taken()
    await send({"type": "http.response.body"})
