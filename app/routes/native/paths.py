"""The routes of the native API that compute: operations and checks on ops."""

from functools import partial
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from app.errors import NotFound, did_you_mean
from app.execution.engine import Engine
from app.http.request import Request
from app.http.route import RawRoute, RestRoute, always
from app.requests.answers import EVENTS, JSON, LINES
from app.requests.models import ref
from app.requests.operations import OPERATIONS
from app.requests.plans import Plans
from app.routes.native.check_models import (
    CheckAnswer,
    CheckRequest,
    ChecksAnswer,
    ChecksRequest,
    VerifyAnswer,
    VerifyRequest,
)
from app.routes.native.checks import CheckHandler, StreamHandler, VerifyHandler
from app.routes.native.derivatives import operation_routes
from app.routes.native.descriptions import EXAMPLE, X, computation, op_name
from app.routes.native.linearizations import linearization_routes
from app.routes.native.numeric import NumericAnswer, NumericHandler, NumericRequest
from app.routes.native.parameters import parameter_routes
from app.routes.native.sparsity import sparsity_route
from app.routes.protocol import per_op

_EVENT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "event": {"type": "string", "enum": ["start", "progress", "finding", "report", "summary", "error"]},
        "data": {"type": "string", "contentMediaType": JSON, "contentSchema": ref("ChecksAnswer")},
    },
    "required": ["event", "data"],
    "additionalProperties": False,
}
"""The schema of an event of text/event-stream."""


class Lines(JSONResponse):
    """The media type of a stream of checks without the events of text/event-stream."""

    media_type = LINES


def routes(engine: Engine, plans: Plans) -> APIRouter:
    """Return the routes that compute."""
    router = APIRouter()
    router.routes += [
        *operation_routes(engine, plans),
        *linearization_routes(engine, plans),
        sparsity_route(engine, plans),
        *parameter_routes(engine),
        *_check_routes(engine),
    ]
    unknown = always(_unknown_operation, engine.counters("", "other"))
    router.routes.append(RestRoute("/v1/ops/{op}/{operation}", unknown, include_in_schema=False))
    return router


async def _unknown_operation(request: Request) -> None:
    operation, known = (
        request.scope["path_params"]["operation"],
        (*OPERATIONS, "linearize", "sparsity", "numeric", "check", "verify"),
    )
    raise NotFound(f"unknown operation {operation!r}; {did_you_mean(operation, known)}")


def _check_routes(engine: Engine) -> list[RawRoute]:
    """Return the routes of numeric derivatives, and of the checks of one op, a client's gradients and many ops."""
    ops = [*engine.registry.ops]
    return [
        computation(
            "/v1/ops/{op}/numeric",
            per_op(engine, "numeric", partial(NumericHandler, engine)),
            *(NumericRequest, NumericAnswer, {"inputs": {"x": X}}),
            parameters={"op": op_name(ops)},
            tags=["derivatives"],
            summary="Differentiate numerically, with error bars",
        ),
        computation(
            "/v1/ops/{op}/check",
            per_op(engine, "check", partial(CheckHandler, engine)),
            *(CheckRequest, CheckAnswer, {"checks": ["derivative"]}),
            parameters={"op": op_name(ops, accepts_derived=False)},
            tags=["checks"],
            summary="Check the op's gradient",
        ),
        computation(
            "/v1/ops/{op}/verify",
            per_op(engine, "verify", partial(VerifyHandler, engine)),
            *(VerifyRequest, VerifyAnswer, {"inputs": {"x": X}, "gradients": {"x": [2 * x for x in X]}}),
            parameters={"op": op_name(ops)},
            tags=["checks"],
            summary="Verify your gradient",
        ),
        computation(
            "/v1/checks",
            always(StreamHandler(engine), engine.counters("", "checks")),
            *(ChecksRequest, ChecksAnswer, {"ops": [EXAMPLE], "checks": ["derivative"]}),
            tags=["checks"],
            summary="Check all gradients, as a stream of events",
            response_class=Lines,
            responses={200: {"content": {EVENTS: {"schema": _EVENT}}}},
        ),
    ]
