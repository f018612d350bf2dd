"""The Open Inference Protocol (version 2, that of KServe and Triton), under /v2.

An op and each of its derivatives are models (``openinference_models``); inference is a native operation
(``openinference_infer``). Metadata, readiness, statistics and the index of models are answered here, and so is what
else Triton's clients may ask for: that there is none of it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from app.errors import Loc, NotFound, PullbackError, Unprocessable, near, unprocessable, wrong
from app.execution.engine import Engine
from app.http.body import too_large
from app.http.problems import RenderedError
from app.http.request import Request, Route
from app.requests.answering import send_reply
from app.requests.negotiation import JSON, content_type, fields_of
from app.requests.plans import Plans
from app.routes.openinference.compression import content_coding, inflated
from app.routes.openinference.inference import Inference
from app.routes.openinference.models import VERSION, Model, models
from app.routes.openinference.statistics import statistics
from app.routes.protocol import Routes, document_reply, wrong_method
from app.telemetry.counters import Counters
from app.tensors.casting import describe
from app.tensors.strict_json import Body
from pullback import __version__

ROOT = "/v2"
LIVE, READY = f"{ROOT}/health/live", f"{ROOT}/health/ready"
INDEX, STATISTICS = f"{ROOT}/repository/index", f"{ROOT}/models/stats"
# Of a body that is no inference: it is read on the event loop.
MAX_LITTLE = 1 << 16
INFER = "/infer"
EXTENSIONS = ("binary_tensor_data", "parameters", "model_repository", "model_configuration", "statistics")

_MODEL = re.compile(rf"{ROOT}/models/([^/]+)(?:/versions/([^/]+))?(?:/config|/ready|/stats|{INFER})?")
_UNREGISTER = re.compile(rf"{ROOT}/(system|cuda)sharedmemory/region/[^/]+/unregister")
# What Triton's clients can ask for and nobody has here, and why.
_MISSING = {
    re.compile(rf"{ROOT}/repository/models/[^/]+/(load|unload)"): "models cannot be loaded or unloaded: they are "
    "the ops that the service started with",
    re.compile(rf"{ROOT}(/models/[^/]+)?/trace/setting"): "tracing is not supported: GET /metrics has the timings",
    re.compile(rf"{ROOT}/logging"): "logging is configured by the environment (PULLBACK_LOG), not by requests",
    re.compile(rf"{ROOT}/(system|cuda)sharedmemory/.*"): "shared memory is not supported: send tensors as binary data",
}
# What the names of a native request's tensors begin with here.
_LETTERS = {"cotangents": "d", "tangents": "t", "vectors": "v"}


def routes(engine: Engine, plans: Plans) -> Routes:
    """Return the routes of the server and of every model."""
    known = models(engine.registry.ops.values())
    catalogue, health, other = (engine.counters("", label) for label in ("catalogue", "health", "other"))
    by_path: dict[str, Route] = {}

    def add(counters: Counters, method: str, document: Callable[[Body], Any], *paths: str) -> None:
        by_path.update(dict.fromkeys(paths, Route(_Page(method, document), dialect, counters, unpacks=True)))

    for model in known.values():
        for page, document in _documents(engine, model).items():
            add(catalogue, "GET", document, *_paths(model, page))
        counters = engine.counters(model.op.name, model.operation)
        inference = Route(Inference(engine, plans, model, counters), dialect, counters, unpacks=True)
        by_path |= dict.fromkeys(_paths(model, INFER), inference)
    # Last, so that no op's name takes the place of one of these.
    server = {"name": "pullback", "version": __version__, "extensions": EXTENSIONS}
    add(catalogue, "GET", _always(server), ROOT)
    add(catalogue, "POST", partial(_index, engine, list(known)), INDEX)
    add(catalogue, "GET", partial(_statistics, engine, list(known.values())), STATISTICS)
    add(health, "GET", _always({"live": True}), LIVE)
    add(health, "GET", partial(_ready, engine, {}), READY)
    for kind in ("system", "cuda"):
        add(other, "GET", _always([]), f"{ROOT}/{kind}sharedmemory/status")
        add(other, "POST", _always({}), f"{ROOT}/{kind}sharedmemory/unregister")

    async def unknown(request: Request) -> None:
        # No region of shared memory is registered, so unregistering one changes nothing.
        if _UNREGISTER.fullmatch(request.path):
            await _Page("POST", _always({}))(request)
        else:
            raise _unknown(engine, known, request.path)

    rest = Route(unknown, dialect, other, unpacks=True)
    return Routes(by_path, lambda path: rest if path == ROOT or path.startswith(f"{ROOT}/") else None)


def _unknown(engine: Engine, known: Mapping[str, Model], path: str) -> NotFound:
    """Return the error for a path that is not there, with near names of a model, or why its op is unavailable."""
    for pattern, reason in _MISSING.items():
        if pattern.fullmatch(path):
            return NotFound(reason)
    found = _MODEL.fullmatch(path)
    if found and found[1] not in known:
        for broken in engine.registry.unavailable:
            if broken.name == found[1].partition(".")[0]:
                return NotFound(f"model {found[1]} is unavailable: {broken.reason}")
        return NotFound(f"unknown model {found[1]!r}; expected {near(found[1], known)}")
    if found and (found[2] or VERSION) != VERSION:
        return NotFound(f"model {found[1]}: expected version {VERSION}, got {found[2]!r}")
    return NotFound(f"unknown path {path} in the Open Inference Protocol")


@dataclass(frozen=True)
class _Page:
    """Answers with a document by one method; ``document`` makes it of the body, which is empty in a GET."""

    method: str
    document: Callable[[Body], Any]

    async def __call__(self, request: Request) -> None:
        if request.method != self.method:
            raise wrong_method(request, self.method)
        body = await _body(request) if self.method == "POST" else b""
        await send_reply(document_reply(self.document(body)), request)


def _documents(engine: Engine, model: Model) -> dict[str, Callable[[Body], Any]]:
    """Return what answers on each page of a model."""
    return {
        "": _always(model.metadata()),
        "/config": _always(model.config()),
        "/ready": partial(_ready, engine, {"name": model.name}),
        "/stats": partial(_statistics, engine, [model]),
    }


def _always(document: Any) -> Callable[[Body], Any]:
    def answered(body: Body) -> Any:
        del body
        return document

    return answered


def _ready(engine: Engine, document: Mapping[str, Any], body: Body) -> dict[str, Any]:
    """Say that requests are welcome, or raise ``Overloaded``."""
    del body
    engine.need_ready()
    return {**document, "ready": True}


def _statistics(engine: Engine, known: Sequence[Model], body: Body) -> dict[str, Any]:
    del body
    return statistics(engine, known)


def _index(engine: Engine, known: Sequence[str], body: Body) -> list[dict[str, str]]:
    """Return every model, and where the body does not say ``{"ready": true}`` the ops that do not load as well."""
    ready = [_indexed(name, "READY", "") for name in known]
    broken = [_indexed(op.name, "UNAVAILABLE", op.reason) for op in engine.registry.unavailable]
    return ready if _wants_ready(body) else ready + broken


def _indexed(name: str, state: str, reason: str) -> dict[str, str]:
    return {"name": name, "version": VERSION, "state": state, "reason": reason}


def _wants_ready(body: Body) -> bool:
    """Return what the body of a request for the index says; raises ``Malformed`` or ``Unprocessable``."""
    fields = fields_of(body) if bytes(body).strip() else {}
    for name, value in fields.items():
        if name != "ready":
            raise wrong((name,), "unknown field", expected="ready, or no field", got=name)
        if not isinstance(value, bool):
            raise wrong((name,), "expected a bool", expected="true or false", got=describe(value))
    return fields.get("ready", False)


async def _body(request: Request) -> Body:
    """Return the body of a request that has little to say."""
    content_type(request.headers, default=JSON)
    coding, body = content_coding(request.headers), await request.read()
    if coding:
        return await inflated(body, coding, request, MAX_LITTLE)
    if len(body) > MAX_LITTLE:
        raise too_large(MAX_LITTLE, str(len(body)))
    return body


def _paths(model: Model, page: str) -> tuple[str, str]:
    path = f"{ROOT}/models/{model.name}"
    return f"{path}{page}", f"{path}/versions/{VERSION}{page}"


def dialect(error: PullbackError, instance: str) -> RenderedError:
    """Render an error as one sentence, which names what the client sent."""
    del instance
    status = 400 if isinstance(error, Unprocessable) else error.status
    return RenderedError(status, JSON, {"error": _renamed(error).sentence()})


def _renamed(error: PullbackError) -> PullbackError:
    """Return what is wrong with a native request as what is wrong with the one that it was made of."""
    if not isinstance(error, Unprocessable) or not error.entries:
        return error
    return unprocessable([replace(error.entries[0], loc=_place(error.entries[0].loc))])


def _place(loc: Loc) -> Loc:
    match loc:
        case ("attrs", *rest):
            return ("parameters", *rest)
        case (str(field), str(slot), *rest) if field in _LETTERS:
            return ("inputs", _LETTERS[field] + slot, *rest)
        case _:
            return loc
