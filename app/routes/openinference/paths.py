"""The paths of the Open Inference Protocol (version 2, used by KServe and Triton), under /v2.

Each op and each of its derivatives is a model (``app.routes.openinference.models``); inference is a native operation
(``app.routes.openinference.inference``). This module answers requests for metadata, readiness and the index of
models, and refuses the features of Triton that the service does not have.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from fastapi import APIRouter

from app.autodiff.kept import Kept
from app.errors import NotFound, did_you_mean, wrong
from app.execution.engine import Engine
from app.http.body import too_large
from app.http.request import Request
from app.http.route import Answer, Find, RawRoute, RestRoute, always
from app.kept.graphs import NAME as GRAPH
from app.requests.answering import send_reply
from app.requests.fields import fields_of
from app.requests.operations import OPERATIONS
from app.requests.plans import Plans
from app.routes.openinference.compression import content_coding, inflate
from app.routes.openinference.inference import LENGTH_HEADER, Inference, admit
from app.routes.openinference.models import VERSION, Model, dialect, models
from app.routes.protocol import described, document_reply, find_op
from app.telemetry.counters import Counters
from app.tensors.casting import describe
from app.tensors.strict_json import Body
from ops import Op
from pullback import __version__

ROOT = "/v2"
LIVE, READY = f"{ROOT}/health/live", f"{ROOT}/health/ready"
INDEX = f"{ROOT}/repository/index"
# The size in bytes of a body other than inference, which is read on the event loop.
MAX_PAGE_BODY = 1 << 16
INFER, VERSIONS = "/infer", "/versions/{version}"
MEMORY = ("system", "cuda")
EXTENSIONS = (
    "binary_tensor_data",
    "parameters",
    "model_repository",
    "model_configuration",
)

# The features of Triton that the service does not have, and why.
_UNSUPPORTED = {
    re.compile(rf"{ROOT}/repository/models/[^/]+/(load|unload)"): "models cannot be loaded or unloaded: they are "
    "the ops that the service started with",
    re.compile(rf"{ROOT}/(system|cuda)sharedmemory/.*"): "shared memory is not supported: send tensors as binary data",
    re.compile(
        rf"{ROOT}/(models/[^/]+/(versions/[^/]+/)?)?trace/setting"
    ): "tracing is not supported: GET /metrics has the times of each stage",
    re.compile(rf"{ROOT}/models/[^/]+/(versions/[^/]+/)?stats"): "statistics are not supported: GET /metrics has them",
    re.compile(rf"{ROOT}/logging"): "requests cannot read or change the log: its format is that of PULLBACK_LOG",
}

_OPTIONS: Mapping[str, Any] = {
    "dialect": dialect,
    "admit": admit,
    "include_in_schema": False,
    "responses": {200: {"headers": {LENGTH_HEADER: {"description": "The length in bytes of the JSON in the body."}}}},
}


def routes(engine: Engine, plans: Plans) -> APIRouter:
    """Return the routes of every model and of the server."""
    known = models(engine.registry.ops.values())
    catalogue, health, other = (engine.counters("", label) for label in ("catalogue", "health", "other"))
    server = {"name": "pullback", "version": __version__, "extensions": EXTENSIONS}

    def page(path: str, method: str, document: Callable[[Body], Any], counters: Counters = other) -> RawRoute:
        return _route(path, always(_page(method, document), counters), method)

    def of_models(
        path: str, make: Callable[[Model], Answer], counters: Counters | None, *methods: str
    ) -> list[RawRoute]:
        find = _per_model(engine, known, make, counters)
        return [_route(f"{ROOT}/models/{{model}}{version}{path}", find, *methods) for version in ("", VERSIONS)]

    def inference(model: Model) -> Answer:
        return Inference(engine, plans, model, engine.counters(model.op.owner, model.operation))

    def documents(path: str, document: Callable[[Model], Any], counters: Counters = catalogue) -> list[RawRoute]:
        def make(model: Model) -> Answer:
            async def answer(request: Request) -> None:
                reply = await described(engine, request, model.op, lambda: document_reply(document(model)))
                await send_reply(reply, request)

            return answer

        return of_models(path, make, counters, "GET")

    router = APIRouter()
    router.routes += [
        *of_models(INFER, inference, None, "POST"),
        *documents("", Model.metadata),
        *documents("/config", Model.config),
        *documents("/ready", lambda model: _ready(engine, {"name": model.name}), health),
        *(page(path, "GET", lambda body: server, catalogue) for path in (ROOT, f"{ROOT}/")),
        page(INDEX, "POST", partial(_index, engine, list(known)), catalogue),
        page(LIVE, "GET", lambda body: {"live": True}, health),
        page(READY, "GET", lambda body: _ready(engine, {}), health),
        *(page(f"{ROOT}/{kind}sharedmemory/status", "GET", lambda body: []) for kind in MEMORY),
        # No region of shared memory is registered, so unregistering one changes nothing.
        *(page(f"{ROOT}/{kind}sharedmemory/unregister", "POST", lambda body: {}) for kind in MEMORY),
        *(page(f"{ROOT}/{kind}sharedmemory/region/{{region}}/unregister", "POST", lambda body: {}) for kind in MEMORY),
        RestRoute(f"{ROOT}/{{rest:path}}", always(_unknown, other), **_OPTIONS),
    ]
    return router


def _route(path: str, find: Find, *methods: str) -> RawRoute:
    return RawRoute(path, find, methods=[*methods], **_OPTIONS)


def _per_model(
    engine: Engine, known: Mapping[str, Model], make: Callable[[Model], Answer], own_counters: Counters | None
) -> Find:
    """Return what finds the handler of a model, which ``make`` makes in no time.

    The counters are those of the model's operation, unless the requests have their ``own_counters``.
    """

    def counters(model: str, version: str = VERSION) -> Counters:
        owner, last = engine.owner(model), model.rpartition(".")[2]
        if not owner:
            return engine.counters("", "other")
        return own_counters or engine.counters(owner, last if last in OPERATIONS else "forward")

    async def handler(request: Request, model: str, version: str = VERSION) -> Answer:
        found = known.get(model) or await _other_model(engine, request, model)
        if found is None:
            for op in engine.registry.unavailable:
                if op.name == model.partition(".")[0]:
                    raise NotFound(f"model {model} is unavailable: {op.reason}")
            if graph := GRAPH.match(model):
                await find_op(engine, request, graph[0])  # it raises what is to be done about a graph that is gone
            if (op := engine.registry.ops.get(model.partition(".")[0])) is not None and op.is_complex:
                raise NotFound(f"op {op.name} has complex numbers, which the Open Inference Protocol lacks: use /v1")
            raise NotFound(f"unknown model {model!r}; {did_you_mean(model, known)}")
        if version != VERSION:
            raise NotFound(f"model {model}: expected version {VERSION}, got {version!r}")
        return make(found)

    return Find(counters, handler)


@Kept
def _models_of(op: Op) -> Mapping[str, Model]:
    return models([op])


async def _other_model(engine: Engine, request: Request, name: str) -> Model | None:
    """Return the model of a derived op or of a posted graph: an operation on it, or the op; ``None`` if none has it."""
    for op_name in (name.rpartition(".")[0], name):
        if "." not in op_name:
            continue
        with suppress(NotFound):
            op = await find_op(engine, request, op_name)
            if not _models_of.is_known(op):
                await described(engine, request, op, partial(_models_of, op))
            if (model := _models_of(op).get(name)) is not None:
                return model
    return None


async def _unknown(request: Request) -> None:
    """Raise the error for an unknown path, with the reason if it is that of a feature that the service lacks."""
    for pattern, reason in _UNSUPPORTED.items():
        if pattern.fullmatch(request.path):
            raise NotFound(reason)
    raise NotFound(f"unknown path {request.path} in the Open Inference Protocol")


def _page(method: str, document: Callable[[Body], Any]) -> Answer:
    """Return what sends the document that ``document`` makes from the body, which is empty for GET."""

    async def page(request: Request) -> None:
        body = await _body(request) if method == "POST" else b""
        await send_reply(document_reply(document(body)), request)

    return page


def _ready(engine: Engine, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``document`` with ``ready``; raises ``Overloaded`` if the service does not accept requests."""
    engine.need_ready()
    return {**document, "ready": True}


def _index(engine: Engine, known: Sequence[str], body: Body) -> list[dict[str, str]]:
    """Return all models and, unless the body is ``{"ready": true}``, the ops that failed to load.

    Raises ``Malformed`` or ``Unprocessable`` for another body.
    """
    fields: dict[str, Any] = fields_of(body) if bytes(body).strip() else {}
    for name, value in fields.items():
        if name != "ready":
            raise wrong((name,), "unknown field", expected="ready, or no field", got=name)
        if not isinstance(value, bool):
            raise wrong((name,), "expected a bool", expected="true or false", got=describe(value))
    entries = [(name, "READY", "") for name in known]
    if not fields.get("ready", False):
        entries += [(op.name, "UNAVAILABLE", op.reason) for op in engine.registry.unavailable]
    return [{"name": name, "version": VERSION, "state": state, "reason": reason} for name, state, reason in entries]


async def _body(request: Request) -> Body:
    """Return the body of a request other than inference, of at most ``MAX_PAGE_BODY`` bytes.

    Its media type may be any: Triton ignores it, and curl and aiohttp label every body.
    """
    coding, body = content_coding(request.headers), await request.read()
    if coding:
        return await inflate(body, coding, request, MAX_PAGE_BODY)
    if len(body) > MAX_PAGE_BODY:
        raise too_large(MAX_PAGE_BODY, str(len(body)))
    return body
