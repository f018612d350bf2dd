"""PUT /v1/ops/{op}/parameters, and GET /v1/ops/{op}/parameters/{digest}: values of parameters, as safetensors."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Annotated, Any

from fastapi import Path, Response
from pydantic import BaseModel, Field

from app.errors import Forbidden, NotFound
from app.execution.engine import Engine
from app.http.request import Request
from app.http.route import RawRoute, need_uncompressed
from app.kept.parameters import DIGEST
from app.kept.upload import PIECE, Upload
from app.requests.answering import Reply, send_reply
from app.requests.answers import JSON, accepted, content_type
from app.routes.native.descriptions import op_name
from app.routes.protocol import document_reply, per_op
from app.tensors import safetensors
from ops import Op

ALL, ONE = "/v1/ops/{op}/parameters", "/v1/ops/{op}/parameters/{digest}"
_BINARY: dict[str, Any] = {"type": "string", "format": "binary"}


class PutAnswer(BaseModel):
    """The digest of values that the service has."""

    digest: str = Field(description="Send it in the field parameters of other requests.")


class Safetensors(Response):
    """A response in safetensors."""

    media_type = safetensors.MEDIA_TYPE


def parameter_routes(engine: Engine) -> list[RawRoute]:
    """Return the routes of parameters."""
    op: Any = op_name([*engine.registry.ops])

    def route(path: str, handler: Callable[[Engine, Op, Request], Awaitable[None]], **options: Any) -> RawRoute:
        endpoint = per_op(engine, "parameters", lambda op, counters: partial(handler, engine, op))
        return RawRoute(path, endpoint, tags=["derivatives"], **options)

    put = route(
        ALL,
        _put,
        methods=["PUT"],
        summary="Put values of parameters",
        operation_id="put_parameters",
        admit=partial(_admit, engine),
        parameters={"op": op},
        response_model=PutAnswer,
        response_description="The service had these values already.",
        responses={201: {"model": PutAnswer, "description": "The values are new."}},
        openapi_extra={"requestBody": {"required": True, "content": {safetensors.MEDIA_TYPE: {"schema": _BINARY}}}},
    )
    get = route(
        ONE,
        _get,
        methods=["GET"],
        summary="Get values of parameters",
        operation_id="parameters",
        parameters={"op": op, "digest": Annotated[str, Path(pattern=f"^{DIGEST.pattern}$")]},
        response_model=None,
        response_class=Safetensors,
        response_description="The values.",
    )
    return [put, get]


def _admit(engine: Engine, request: Request) -> None:
    """Reserve memory for two pieces of the body.

    Raises ``Forbidden`` if clients may put no parameters, and a ``PullbackError`` for a compressed or too large body.
    """
    if not engine.sets.is_allowed:
        raise Forbidden(
            "this service takes no parameters from clients; its operator can allow them with PULLBACK_PARAMETERS_MB"
        )
    need_uncompressed(request)
    request.binary_limit = engine.sets.largest + safetensors.MAX_HEADER + safetensors.LENGTH
    request.reserve(is_binary=True, most=2 * PIECE + safetensors.MAX_HEADER)


async def _put(engine: Engine, op: Op, request: Request) -> None:
    """Store the values in the body, and send their digest; raises a ``PullbackError`` for invalid values."""
    _need_parameters(op)
    content_type(request.headers, (safetensors.MEDIA_TYPE,))
    accepted(request.headers)
    upload = await asyncio.to_thread(Upload, engine.sets, op, request.key)
    try:
        async with aclosing(request.pieces(PIECE)) as pieces:
            async for piece in pieces:
                await asyncio.to_thread(upload.write, piece)
        digest, is_new = await asyncio.to_thread(upload.finish)
    finally:
        await asyncio.to_thread(upload.drop)
    headers = ((b"location", f"/v1/ops/{op.owner}/parameters/{digest}".encode()),)
    reply = document_reply({"digest": digest}, JSON)
    await send_reply(reply._replace(headers=headers, status=201 if is_new else 200), request)


async def _get(engine: Engine, op: Op, request: Request) -> None:
    """Send the values that have the digest in the path; raises ``NotFound`` for an unknown digest."""
    _need_parameters(op)
    accepted(request.headers, (safetensors.MEDIA_TYPE,))

    async def values() -> Reply:
        found = engine.parameters(op, request.scope["path_params"]["digest"])
        layout = safetensors.lay_out(dict(found.arrays), {})
        return Reply(safetensors.MEDIA_TYPE, layout.pieces(), layout=layout)

    await send_reply(await engine.with_all(values, request.deadline.at, request.key), request)


def _need_parameters(op: Op) -> None:
    if not op.own_parameters.arrays:
        raise NotFound(f"op {op.name} has no parameters")
