"""The paths of UM-Bridge 1.0, where each op is a function of flat vectors.

==================  =============================================================================================
``/Info``           the models: every op without bool tensors whose input shapes determine its output shapes, and its
                    first derivations; further derivations are models too
``/ModelInfo``      the actions that a model supports with its default attributes
``/InputSizes``     the lengths of its input vectors, by ``config`` (``app.routes.umbridge.models``)
``/OutputSizes``    the lengths of its output vectors
``/Evaluate``       the value
``/Gradient``       J[out, in]ᵀ sens: the vjp
``/ApplyJacobian``  J[out, in] vec: the jvp
``/ApplyHessian``   ∂/∂x_in2 (J[out, in1]ᵀ sens) vec: the tangent of the vjp
==================  =============================================================================================
"""

from collections.abc import Callable, Mapping
from functools import partial

from fastapi import APIRouter

from app.errors import Malformed, NotFound, OpFailed, PullbackError, Unprocessable
from app.execution.engine import Engine
from app.http.problems import RenderedError
from app.http.request import Request
from app.http.route import Answer, RawRoute, always
from app.requests.answering import Reply, answer, send_reply
from app.requests.answers import JSON, content_type
from app.requests.fields import fields_of
from app.requests.plans import Plans
from app.routes.protocol import document_reply
from app.routes.umbridge.actions import ACTIONS, UnsupportedFeature, name_of, read_call, refuse_unknown, supports
from app.routes.umbridge.models import Model, Models, Vector
from app.telemetry.accounts import Owner
from app.telemetry.counters import Counters
from app.tensors.strict_json import Body

VERSION = 1.0
INFO, MODEL_INFO = "/Info", "/ModelInfo"
SIZES: Mapping[str, Callable[[Model], tuple[Vector, ...]]] = {
    "inputSizes": lambda model: model.inputs,
    "outputSizes": lambda model: model.outputs,
}
# Clients of the protocol send JSON, text, their HTTP library's default for strings, or no Content-Type.
MEDIA_TYPES = (JSON, "text/plain", "application/x-www-form-urlencoded")


def routes(engine: Engine, plans: Plans) -> APIRouter:
    """Return the routes of the protocol; each request names its model in the body."""
    models = Models(engine)

    async def info(request: Request) -> None:
        await send_reply(await _described(engine, request, partial(_info, models)), request)

    async def description(request: Request) -> None:
        body = await _body(request)
        await send_reply(await _described(engine, request, partial(_describe, models, request.path, body)), request)

    async def action(request: Request) -> None:
        body = await _body(request)
        user_agent = request.headers.get(b"user-agent", b"")
        call = partial(read_call, engine, plans, models, ACTIONS[request.path])
        read = partial(call, parse=request.parse, user_agent=user_agent)
        await answer(engine, request, read, body, op="")

    catalogue, computations = engine.counters("", "catalogue"), engine.counters("", "umbridge")

    def route(path: str, answer: Answer, counters: Counters, method: str = "POST") -> RawRoute:
        find = always(answer, counters)
        return RawRoute(path, find, methods=[method], dialect=dialect, include_in_schema=False)

    descriptions = (MODEL_INFO, "/InputSizes", "/OutputSizes")
    router = APIRouter()
    router.routes += [route(path, action, computations) for path in ACTIONS]
    router.routes += [route(path, description, catalogue) for path in descriptions]
    router.routes.append(route(INFO, info, catalogue, "GET"))
    return router


async def _body(request: Request) -> Body:
    content_type(request.headers, MEDIA_TYPES, JSON)
    return await request.read()


async def _described(engine: Engine, request: Request, work: Callable[[], Reply]) -> Reply:
    """Return a description, made where it holds no other request; its op is not known before."""
    deadline, key = request.deadline.at, request.key
    return await engine.with_all(lambda: engine.describe(work, Owner(INFO, key), deadline), deadline, key)


def _info(models: Models) -> Reply:
    return document_reply({"protocolVersion": VERSION, "models": models.names})


def _describe(models: Models, path: str, body: Body) -> Reply:
    """Return the response to a request that does not run the op."""
    fields = fields_of(body)
    op = models.op_at_hand(name_of(fields))
    models.check(op)
    refuse_unknown(fields, ("name",) if path == MODEL_INFO else ("name", "config"))
    if path == MODEL_INFO:
        return document_reply({"support": {action.name: supports(op, action) for action in ACTIONS.values()}})
    field = path[1].lower() + path[2:]
    sizes = [vector.size for vector in SIZES[field](models.model(op, fields.get("config", {})))]
    return document_reply({field: sizes})


def dialect(error: PullbackError, instance: str) -> RenderedError:
    """Render an error as a type and a message; the type is the protocol's own if it defines one."""
    del instance
    match error:
        case NotFound():
            status, kind = 400, "ModelNotFound"
        case UnsupportedFeature():
            status, kind = 400, "UnsupportedFeature"
        case Unprocessable() | Malformed():
            status, kind = 400, "InvalidInput"
        case OpFailed():
            status, kind = 500, "InvalidOutput"
        case _:
            status, kind = error.status, type(error).__name__
    return RenderedError(status, JSON, {"error": {"type": kind, "message": error.sentence()}})
