"""The Open Inference Protocol (version 2, that of KServe and Triton), under /v2.

An op and each of its derivatives are models (``openinference_models``); inference is a native operation
(``openinference_infer``). Metadata, readiness, statistics and the index of models are answered here, and so is what
else Triton's clients may ask for: that there is none of it.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from starlette.types import ASGIApp, Receive, Scope, Send

from app.errors import Loc, NotFound, PullbackError, Unprocessable, near, unprocessable, wrong
from app.execution.engine import Engine
from app.http.body import too_large
from app.http.problems import RenderedError
from app.requests.answering import body_of, send_reply
from app.requests.negotiation import JSON, content_type, fields_of
from app.requests.plans import Plans
from app.routes.openinference.compression import content_coding, inflated
from app.routes.openinference.inference import Inference
from app.routes.openinference.models import VERSION, Model, models
from app.routes.openinference.statistics import statistics
from app.routes.protocol import Labels, Protocol, document_reply, need_method
from app.tensors.casting import describe
from app.tensors.strict_json import Body
from ops import Op
from pullback import __version__

ROOT = "/v2"
LIVE, READY = f"{ROOT}/health/live", f"{ROOT}/health/ready"
INDEX, STATISTICS = f"{ROOT}/repository/index", f"{ROOT}/models/stats"
# Of a body that is no inference: it is read on the event loop.
MAX_LITTLE = 1 << 16
OF_MODEL, INFER = ("", "/config", "/ready", "/stats"), "/infer"
EXTENSIONS = ("binary_tensor_data", "parameters", "model_repository", "model_configuration", "statistics")

_MODEL = re.compile(rf"{ROOT}/models/([^/]+)(?:/versions/([^/]+))?(?:{'|'.join((*OF_MODEL[1:], INFER))})?")
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


class Page(NamedTuple):
    """What answers on a path: by which method, and from the body (empty in a GET) to a document."""

    method: str
    document: Callable[[Body], Any]


@dataclass(frozen=True)
class OpenInference:
    """The app of the protocol: ``pages`` and ``inferences`` are by path, ``models`` by name."""

    engine: Engine
    models: Mapping[str, Model]
    pages: Mapping[str, Page]
    inferences: Mapping[str, Inference]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; raises every ``PullbackError`` of one that is wrong, or cannot be answered."""
        path: str = scope["path"]
        if inference := self.inferences.get(path):
            need_method(scope, "POST")
            await inference(scope, receive, send)
            return
        page = self.pages.get(path) or self._free_page(path)
        need_method(scope, page.method)
        body = await _body(scope, receive) if page.method == "POST" else b""
        await send_reply(document_reply(page.document(body)), scope, send)

    def _free_page(self, path: str) -> Page:
        """Return what answers on the one kind of path that may name anything; raises ``NotFound`` for all others.

        No region of shared memory is registered, and when one has been unregistered that is still so.
        """
        if _UNREGISTER.fullmatch(path):
            return Page("POST", _always({}))
        for pattern, why in _MISSING.items():
            if pattern.fullmatch(path):
                raise NotFound(why)
        if found := _MODEL.fullmatch(path):
            self._need_model(found[1], found[2] or VERSION)
        raise NotFound(f"unknown path {path} in the Open Inference Protocol")

    def _need_model(self, name: str, version: str) -> None:
        """Raise ``NotFound`` for a model that is not there, with near names, or with why its op is unavailable."""
        if name not in self.models:
            for broken in self.engine.registry.unavailable:
                if broken.name == name.partition(".")[0]:
                    raise NotFound(f"model {name} is unavailable: {broken.reason}")
            raise NotFound(f"unknown model {name!r}; expected {near(name, self.models)}")
        if version != VERSION:
            raise NotFound(f"model {name}: expected version {VERSION}, got {version!r}")


def _pages(engine: Engine, known: Mapping[str, Model]) -> dict[str, Page]:
    """Return what answers on each path where a document is the answer."""
    server = {"name": "pullback", "version": __version__, "extensions": EXTENSIONS}
    pages = dict[str, Page]()
    for model in known.values():
        for page, document in _documents(engine, model).items():
            pages |= dict.fromkeys(_paths(model, page), Page("GET", document))
    # Last, so that no op's name takes the place of one of these.
    return pages | {
        ROOT: Page("GET", _always(server)),
        LIVE: Page("GET", _always({"live": True})),
        READY: Page("GET", partial(_ready, engine, {})),
        INDEX: Page("POST", partial(_index, engine, list(known))),
        STATISTICS: Page("GET", partial(_statistics, engine, list(known.values()))),
        **{f"{ROOT}/{kind}sharedmemory/status": Page("GET", _always([])) for kind in ("system", "cuda")},
        **{f"{ROOT}/{kind}sharedmemory/unregister": Page("POST", _always({})) for kind in ("system", "cuda")},
    }


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


async def _body(scope: Scope, receive: Receive) -> Body:
    """Return the body of a request that has little to say."""
    headers = dict(scope["headers"])
    content_type(headers, default=JSON)
    coding, body = content_coding(headers), await body_of(scope, receive)
    if coding:
        return await inflated(body, coding, scope, MAX_LITTLE)
    if len(body) > MAX_LITTLE:
        raise too_large(MAX_LITTLE, str(len(body)))
    return body


def _serve(engine: Engine, plans: Plans) -> ASGIApp:
    known = models(engine.registry.ops.values())
    inferences = {
        path: Inference(engine, plans, model, engine.counters(model.op.name, model.operation))
        for model in known.values()
        for path in _paths(model, INFER)
    }
    return OpenInference(engine, known, _pages(engine, known), inferences)


def _paths(model: Model, page: str) -> tuple[str, str]:
    path = f"{ROOT}/models/{model.name}"
    return f"{path}{page}", f"{path}/versions/{VERSION}{page}"


def _dialect(error: PullbackError, instance: str) -> RenderedError:
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


def _counted(ops: Iterable[Op]) -> Mapping[str, Labels]:
    found: dict[str, Labels] = dict.fromkeys((ROOT, STATISTICS, INDEX), ("", "catalogue"))
    found |= dict.fromkeys((LIVE, READY), ("", "health"))
    for model in models(ops).values():
        for page in OF_MODEL:
            found |= dict.fromkeys(_paths(model, page), ("", "catalogue"))
        found |= dict.fromkeys(_paths(model, INFER), (model.op.name, model.operation))
    return found


PROTOCOL = Protocol(
    "openinference",
    lambda path: path == ROOT or path.startswith(f"{ROOT}/"),
    _serve,
    _dialect,
    _counted,
    unpacks=True,
)
