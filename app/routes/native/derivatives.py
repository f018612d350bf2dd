"""POST /v1/ops/{op}/{operation}: every operation, behind one ASGI function.

FastAPI lists the same operations in its OpenAPI document (``app.routes.native.openapi``), but requests do not pass
through it: a plain function in front of it answers twice as many.
"""

from functools import partial
from typing import Any, NamedTuple

from starlette.types import ASGIApp, Receive, Scope, Send

from app.errors import MethodNotAllowed, NotFound, near
from app.execution.engine import Engine
from app.requests.answering import Question, Reader, Reply, answer, body_of
from app.requests.negotiation import accepted, content_type, fields_of
from app.requests.operations import OPERATIONS, Operation
from app.requests.plans import Plan, Plans
from app.routes.native.formats import FORMATS, Format
from app.telemetry.counters import Counters
from app.tensors.strict_json import Body
from ops import Op

MEDIA_TYPES = tuple(FORMATS)


class _Asked(NamedTuple):
    """What is asked of which op, the format that it comes in, and the one to answer in."""

    operation: Operation
    op: Op
    source: Format
    target: Format
    counters: Counters


def operations(fallback: ASGIApp, engine: Engine, plans: Plans) -> ASGIApp:
    """Return an app that answers the operations itself and leaves every other path to ``fallback``.

    Raises, for what stands around it to render, every ``PullbackError`` of a request that is wrong.
    """

    async def dispatched(scope: Scope, receive: Receive, send: Send) -> None:
        match scope["path"].split("/") if scope["type"] == "http" else ():
            case ["", "v1", "ops", op, operation]:
                reader, source = _reader(engine, plans, op, operation, scope)
                body = await body_of(scope, receive, is_binary=source.is_binary)
                await answer(engine, reader, body, scope, send)
            case _:
                await fallback(scope, receive, send)

    return dispatched


def _reader(engine: Engine, plans: Plans, op_name: str, operation_name: str, scope: Scope) -> tuple[Reader, Format]:
    """Return how to read a request, and the format that it comes in."""
    operation = OPERATIONS.get(operation_name)
    if operation is None:
        raise NotFound(f"unknown operation {operation_name!r}; expected {near(operation_name, OPERATIONS)}")
    if scope["method"] != "POST":
        detail = f"expected POST, got {scope['method']}"
        raise MethodNotAllowed(detail, headers={"Allow": "POST"})
    op = engine.op(op_name)
    headers = dict(scope["headers"])
    source, target = FORMATS[content_type(headers, MEDIA_TYPES)], FORMATS[accepted(headers, MEDIA_TYPES)]
    counters = engine.counters(op_name, operation_name)
    read = partial(_question, plans, _Asked(operation, op, source, target, counters))
    return Reader(read, op_name, counters, source.is_binary and target.is_binary), source


def _question(plans: Plans, asked: _Asked, body: Body) -> Question:
    fields = fields_of(body, asked.source.parse)
    plan = plans.plan(asked.operation, asked.op, fields)
    return Question(asked.op.name, plan.task(fields), partial(_written, plan, asked.target), asked.counters)


def _written(plan: Plan, target: Format, found: Any) -> Reply:
    return target.reply(plan.operation.tree(plan.asked, found), plan.encoding)
