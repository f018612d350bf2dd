"""The paths of the Open Inference Protocol (version 2, used by KServe and Triton), under /v2.

Each op and each of its derivatives is a model (``app.routes.openinference.models``); inference is a native operation
(``app.routes.openinference.inference``). This module answers requests for metadata, readiness, statistics and the index
of models, and refuses the features of Triton that the service does not have.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from app.errors import Loc, NotFound, PullbackError, Unprocessable, did_you_mean, unprocessable, wrong
from app.execution.engine import Engine
from app.http.body import too_large
from app.http.problems import RenderedError
from app.http.request import Request, Route
from app.requests.answering import send_reply
from app.requests.negotiation import JSON, fields_of
from app.requests.plans import Plans
from app.routes.openinference.compression import content_coding, inflate
from app.routes.openinference.inference import Inference
from app.routes.openinference.models import VERSION, Model, models
from app.routes.openinference.server_settings import LOG, LOG_IS_FIXED, TRACE, TRACE_IS_FIXED, ReadOnly
from app.routes.openinference.statistics import statistics
from app.routes.protocol import DerivedRoutes, Routes, document_reply, need_method
from app.telemetry.counters import Counters
from app.tensors.casting import describe
from app.tensors.strict_json import Body
from ops import Op
from pullback import __version__

ROOT = "/v2"
LIVE, READY = f"{ROOT}/health/live", f"{ROOT}/health/ready"
INDEX, STATISTICS = f"{ROOT}/repository/index", f"{ROOT}/models/stats"
# The size in bytes of a body other than inference, which is read on the event loop.
MAX_PAGE_BODY = 1 << 16
INFER = "/infer"
TRACE_PAGE = "/trace/setting"
EXTENSIONS = (
    "binary_tensor_data",
    "classification",
    "parameters",
    "model_repository",
    "model_configuration",
    "statistics",
)

_MODEL = re.compile(rf"{ROOT}/models/([^/]+)(?:/versions/([^/]+))?(?:/config|/ready|/stats|{TRACE_PAGE}|{INFER})?")
_UNREGISTER = re.compile(rf"{ROOT}/(system|cuda)sharedmemory/region/[^/]+/unregister")
# The features of Triton that the service does not have, and why.
_UNSUPPORTED = {
    re.compile(rf"{ROOT}/repository/models/[^/]+/(load|unload)"): "models cannot be loaded or unloaded: they are "
    "the ops that the service started with",
    re.compile(rf"{ROOT}/(system|cuda)sharedmemory/.*"): "shared memory is not supported: send tensors as binary data",
}


def routes(engine: Engine, plans: Plans) -> Routes:
    """Return the routes of the server and of every model."""
    known = models(engine.registry.ops.values())
    catalogue, health, other = (engine.counters("", label) for label in ("catalogue", "health", "other"))
    trace = Route(ReadOnly(_Page("GET", _always(TRACE)), TRACE_IS_FIXED), dialect, other, unpacks=True)
    log = Route(ReadOnly(_Page("GET", _always(LOG)), LOG_IS_FIXED), dialect, other, unpacks=True)
    by_path: dict[str, Route] = {}

    def add(counters: Counters, method: str, document: Callable[[Body], Any], *paths: str) -> None:
        by_path.update(dict.fromkeys(paths, Route(_Page(method, document), dialect, counters, unpacks=True)))

    def of_model(model: Model) -> dict[str, Route]:
        documents: dict[str, Callable[[Body], Any]] = {
            "": _always(model.metadata()),
            "/config": _always(model.config()),
            "/ready": partial(_ready, engine, {"name": model.name}),
            "/stats": partial(_statistics, engine, [model]),
        }
        found = dict.fromkeys(_paths(model, TRACE_PAGE), trace)
        for page, document in documents.items():
            own = health if page == "/ready" else catalogue
            route = Route(_Page("GET", document), dialect, own, unpacks=True)
            found |= dict.fromkeys(_paths(model, page), route)
        counters = engine.counters(model.op.owner, model.operation)
        inference = Route(
            Inference(engine, plans, model, counters), partial(dialect, model=model), counters, unpacks=True
        )
        return found | dict.fromkeys(_paths(model, INFER), inference)

    def of_op(op: Op) -> dict[str, Route]:
        return {path: route for model in models([op]).values() for path, route in of_model(model).items()}

    for model in known.values():
        by_path |= of_model(model)
    # These come last, so that no model replaces them.
    server = {"name": "pullback", "version": __version__, "extensions": EXTENSIONS}
    add(catalogue, "GET", _always(server), ROOT, f"{ROOT}/")
    add(catalogue, "POST", partial(_index, engine, list(known)), INDEX)
    add(catalogue, "GET", partial(_statistics, engine, list(known.values())), STATISTICS)
    add(health, "GET", _always({"live": True}), LIVE)
    add(health, "GET", partial(_ready, engine, {}), READY)
    by_path |= {f"{ROOT}{TRACE_PAGE}": trace, f"{ROOT}/logging": log}
    for kind in ("system", "cuda"):
        add(other, "GET", _always([]), f"{ROOT}/{kind}sharedmemory/status")
        add(other, "POST", _always({}), f"{ROOT}/{kind}sharedmemory/unregister")

    async def unknown(request: Request) -> None:
        # No region of shared memory is registered, so unregistering one changes nothing.
        if _UNREGISTER.fullmatch(request.path):
            await _Page("POST", _always({}))(request)
        else:
            raise _not_found(engine, known, request.path)

    unknown_route, derived = Route(unknown, dialect, other, unpacks=True), DerivedRoutes(engine, of_op)

    def find(path: str) -> Route | None:
        if path != ROOT and not path.startswith(f"{ROOT}/"):
            return None
        name = match[1] if (match := _MODEL.fullmatch(path)) else ""
        # The name of a model ends in an operation on an op, or is that of an op.
        for op in (name.rpartition(".")[0], name):
            if "." in op and (route := derived.find(op, path)) is not None:
                return route
        return unknown_route

    return Routes(by_path, find)


def _not_found(engine: Engine, known: Mapping[str, Model], path: str) -> NotFound:
    """Return the error for an unknown path: similar model names, or the reason why an op or feature is unavailable."""
    for pattern, reason in _UNSUPPORTED.items():
        if pattern.fullmatch(path):
            return NotFound(reason)
    if match := _MODEL.fullmatch(path):
        name, version = match[1], match[2]
        if name not in known:
            for op in engine.registry.unavailable:
                if op.name == name.partition(".")[0]:
                    return NotFound(f"model {name} is unavailable: {op.reason}")
            return NotFound(f"unknown model {name!r}; {did_you_mean(name, known)}")
        if version and version != VERSION:
            return NotFound(f"model {name}: expected version {VERSION}, got {version!r}")
    return NotFound(f"unknown path {path} in the Open Inference Protocol")


@dataclass(frozen=True)
class _Page:
    """The handler of a document, for one method; ``document`` makes it from the body, which is empty for GET."""

    method: str
    document: Callable[[Body], Any]

    async def __call__(self, request: Request) -> None:
        need_method(request, self.method)
        body = await _body(request) if self.method == "POST" else b""
        await send_reply(document_reply(self.document(body)), request)


def _always(document: Any) -> Callable[[Body], Any]:
    def constant(body: Body) -> Any:
        del body
        return document

    return constant


def _ready(engine: Engine, document: Mapping[str, Any], body: Body) -> dict[str, Any]:
    """Return ``document`` with ``ready``; raises ``Overloaded`` if the service does not accept requests."""
    del body
    engine.need_ready()
    return {**document, "ready": True}


def _statistics(engine: Engine, known: Sequence[Model], body: Body) -> dict[str, Any]:
    del body
    return statistics(engine, known)


def _index(engine: Engine, known: Sequence[str], body: Body) -> list[dict[str, str]]:
    """Return all models and, unless the body is ``{"ready": true}``, the ops that failed to load."""
    ready = [_index_entry(name, "READY", "") for name in known]
    unavailable = [_index_entry(op.name, "UNAVAILABLE", op.reason) for op in engine.registry.unavailable]
    return ready if _wants_ready(body) else ready + unavailable


def _index_entry(name: str, state: str, reason: str) -> dict[str, str]:
    return {"name": name, "version": VERSION, "state": state, "reason": reason}


def _wants_ready(body: Body) -> bool:
    """Return the ``ready`` field of a request for the index; raises ``Malformed`` or ``Unprocessable``."""
    fields = fields_of(body) if bytes(body).strip() else {}
    for name, value in fields.items():
        if name != "ready":
            raise wrong((name,), "unknown field", expected="ready, or no field", got=name)
        if not isinstance(value, bool):
            raise wrong((name,), "expected a bool", expected="true or false", got=describe(value))
    return fields.get("ready", False)


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


def _paths(model: Model, page: str) -> tuple[str, str]:
    path = f"{ROOT}/models/{model.name}"
    return f"{path}{page}", f"{path}/versions/{VERSION}{page}"


def dialect(error: PullbackError, instance: str, model: Model | None = None) -> RenderedError:
    """Render an error as one sentence that names the client's fields, which are the tensors of a ``model``."""
    del instance
    status = 400 if isinstance(error, Unprocessable) else error.status
    if isinstance(error, Unprocessable) and error.entries:
        entry = error.entries[0]
        error = unprocessable([replace(entry, loc=_client_loc(model, entry.loc))])
    return RenderedError(status, JSON, {"error": error.sentence()})


def _client_loc(model: Model | None, loc: Loc) -> Loc:
    """Return the location in the client's request of a location in the native one."""
    match loc:
        case ("attrs", *rest):
            return ("parameters", *rest)
        case (str(field), str(slot), *rest) if model is not None:
            inputs = model.inputs.values()
            name = next((tensor.name for tensor in inputs if (tensor.field, tensor.slot.name) == (field, slot)), None)
            return loc if name is None else ("inputs", name, *rest)
        case _:
            return loc
