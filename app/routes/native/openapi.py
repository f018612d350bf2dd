"""The OpenAPI document: FastAPI's, with the operations, the gradient checks and the problem documents added.

One path stands for all ops, so its schemas cannot name the inputs of an op; ``openapi_by_op`` has a path for each op.

Clients are generated from both documents. In TypeScript, the type of an answer is the union over its media types, and a
field with a default is always there. So all media types of an answer have one schema, and no schema has a default.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from app.autodiff.derived import DEEPEST, DERIVATIONS
from app.execution.engine import Engine
from app.http.request import HEALTH
from app.requests.models import Problem
from app.requests.operations import OPERATIONS
from app.requests.tensor_schemas import components, ref
from app.routes.native.check_models import (
    CheckAnswer,
    CheckRequest,
    ChecksAnswer,
    ChecksRequest,
    VerifyAnswer,
    VerifyRequest,
)
from app.tensors.safetensors import MEDIA_TYPE

Schema = dict[str, Any]

_JSON = "application/json"
_SAFETENSORS: Schema = {
    "type": "string",
    "format": "binary",
    "description": "The tensors under their paths, such as inputs/x; other JSON fields are in the metadata, under "
    "pullback.",
}
_PROBLEM = {"application/problem+json": {"schema": ref("Problem")}}
_SECONDS = {"description": "Seconds.", "schema": {"type": "integer", "minimum": 0}}
_SCHEMES = {"description": "The schemes of a key.", "schema": {"type": "string"}}
_METHODS = {"description": "The method of the path.", "schema": {"type": "string"}}
_PROBLEMS: Mapping[str, Schema] = {
    "400": {"description": "The body does not match its content type."},
    "401": {
        "description": "The service needs a key, or does not know this one.",
        "headers": {"WWW-Authenticate": _SCHEMES},
    },
    "403": {
        "description": "A page of another site sent the request, it names a host that is not the service's, or checks "
        "are disabled."
    },
    "404": {"description": "Unknown path, op or operation."},
    "405": {"description": "The path exists, for another method.", "headers": {"Allow": _METHODS}},
    "406": {"description": "The client accepts none of the formats."},
    "408": {"description": "The body did not arrive in time."},
    "413": {"description": "The body is over the byte limit."},
    "415": {"description": "The content type is missing or unsupported, or the body is compressed."},
    "422": {
        "description": "An invalid tensor, shape, dtype, attribute, field, header, mode or device, or too large a "
        "response."
    },
    "429": {
        "description": "Too many requests at a time with this key: try again after the seconds in Retry-After.",
        "headers": {"Retry-After": _SECONDS},
    },
    "431": {"description": "The headers are over the byte limit."},
    "500": {"description": "The op failed, or returned an invalid gradient."},
    "503": {
        "description": "Overloaded or draining: try again after the seconds in Retry-After.",
        "headers": {"Retry-After": _SECONDS},
    },
    "504": {"description": "The deadline passed."},
}
_DEADLINE: Schema = {
    "name": "Pullback-Deadline-Ms",
    "in": "header",
    "required": False,
    "description": "Milliseconds for the whole request, if less than the server's limit.",
    "schema": {"type": "integer", "minimum": 1, "maximum": 10**18 - 1},
}
_REFUSALS = {status: {"$ref": f"#/components/responses/{status}"} for status in _PROBLEMS}
_PARAMETERS = [{"$ref": "#/components/parameters/deadline"}]
# The op of the examples.
_EXAMPLE = "square"
_X, _DX = [1, 2, 3], [2, 4, 6]


@dataclass(frozen=True)
class Endpoint:
    """A path that computes: its models, the contents of its responses, and an example request.

    ``accepts_derived``: the op may be a derived one.
    """

    name: str
    path: str
    tag: str
    summary: str
    request: type[BaseModel]
    answer: type[BaseModel]
    content: Mapping[str, Schema]
    example: Mapping[str, Any]
    accepts_derived: bool = True

    @property
    def is_binary(self) -> bool:
        """Whether requests and responses may be safetensors."""
        return MEDIA_TYPE in self.content


def _derivative(name: str) -> Endpoint:
    operation = OPERATIONS[name]
    more = {field: {"x": _X} for field in ("tangents", "vectors") if field in operation.request.model_fields}
    content = {media_type: {"schema": ref(operation.answer.__name__)} for media_type in (_JSON, MEDIA_TYPE)}
    path, example = f"/v1/ops/{{op}}/{name}", {"inputs": {"x": _X}, **more}
    return Endpoint(name, path, "derivatives", operation.summary, operation.request, operation.answer, content, example)


# A frame of text/event-stream, whose schema in OpenAPI 3.1 is that of one event.
_FRAME: Schema = {
    "type": "object",
    "properties": {
        "event": {"type": "string", "enum": ["start", "progress", "report", "summary", "error"]},
        "data": {"type": "string", "contentMediaType": _JSON, "contentSchema": ref("ChecksAnswer")},
    },
    "required": ["event", "data"],
    "additionalProperties": False,
}
ENDPOINTS: Mapping[str, Endpoint] = {
    endpoint.name: endpoint
    for endpoint in (
        *map(_derivative, OPERATIONS),
        Endpoint(
            "check",
            "/v1/ops/{op}/check",
            "checks",
            "Check the op's gradient",
            CheckRequest,
            CheckAnswer,
            {_JSON: {"schema": ref("CheckAnswer")}},
            {"checks": ["derivative"]},
            accepts_derived=False,
        ),
        Endpoint(
            "verify",
            "/v1/ops/{op}/verify",
            "checks",
            "Verify your gradient",
            VerifyRequest,
            VerifyAnswer,
            {_JSON: {"schema": ref("VerifyAnswer")}},
            {"inputs": {"x": _X}, "gradients": {"x": _DX}},
        ),
        Endpoint(
            "checks",
            "/v1/checks",
            "checks",
            "Check all gradients, as a stream of events",
            ChecksRequest,
            ChecksAnswer,
            {"text/event-stream": {"schema": _FRAME}, "application/x-ndjson": {"schema": ref("ChecksAnswer")}},
            {"ops": [_EXAMPLE], "checks": ["derivative"]},
        ),
    )
}


def document(of_all_ops: Callable[[], Schema]) -> APIRouter:
    """Return the route of the document."""
    router = APIRouter()

    @router.get("/openapi.json", include_in_schema=False)
    async def page() -> JSONResponse:  # pyright: ignore[reportUnusedFunction] - the decorator uses it
        return JSONResponse(of_all_ops())

    return router


def openapi(app: FastAPI, engine: Engine) -> Schema:
    """Return the document, in which one path stands for all ops."""
    document = base(app, engine)
    for endpoint in ENDPOINTS.values():
        schema, examples = ref(endpoint.request.__name__), {_EXAMPLE: {"value": dict(endpoint.example)}}
        parameters = [_op_parameter(engine, endpoint)] if "{op}" in endpoint.path else []
        described = describe(endpoint, schema, examples)
        described["parameters"] = [*parameters, *described["parameters"]]
        document["paths"][endpoint.path] = {"post": described}
    return document


def base(app: FastAPI, engine: Engine) -> Schema:
    """Return the document of the pages, with all components."""
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas |= {**components(), **_models(), "Safetensors": _SAFETENSORS}
    schemas["Device"] = {"type": "string", "enum": list(engine.devices)}
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    document["components"]["schemas"] = {name: without_defaults(schema) for name, schema in schemas.items()}
    document["components"] |= {
        "responses": {status: {**described, "content": _PROBLEM} for status, described in _PROBLEMS.items()},
        "parameters": {"deadline": _DEADLINE},
    }
    for path in document["paths"].values():
        for operation in path.values():
            operation["responses"] = {"200": operation["responses"]["200"], **_REFUSALS}
            operation["parameters"] = [*operation.get("parameters", ()), *_PARAMETERS]
    return document


def with_keys(document: Schema) -> Schema:
    """Return a document in which every path needs a key, except the probes."""
    scheme = {"type": "http", "scheme": "bearer", "description": "A key of the service's file of keys."}
    document["components"]["securitySchemes"] = {"key": scheme}
    document["security"] = [{"key": []}]
    for path, operations in document["paths"].items():
        if path.startswith(HEALTH):
            for operation in operations.values():
                operation["security"] = []
    return document


def describe(endpoint: Endpoint, schema: Schema, examples: Schema) -> Schema:
    """Return the description of an endpoint whose requests have this schema."""
    binary = {MEDIA_TYPE: {"schema": ref("Safetensors")}} if endpoint.is_binary else {}
    return {
        "tags": [endpoint.tag],
        "summary": endpoint.summary,
        "operationId": endpoint.name,
        "parameters": _PARAMETERS,
        "requestBody": {"required": True, "content": {_JSON: {"schema": schema, "examples": examples}, **binary}},
        "responses": {
            "200": {"description": endpoint.answer.__doc__, "content": dict(endpoint.content)},
            **_REFUSALS,
        },
    }


def _models() -> Schema:
    requests: list[Any] = [(endpoint.request, "validation") for endpoint in ENDPOINTS.values()]
    answers: list[Any] = [(endpoint.answer, "serialization") for endpoint in ENDPOINTS.values()]
    models: list[Any] = [*requests, *answers, (Problem, "serialization")]
    _, definitions = models_json_schema(models, ref_template=ref("{model}")["$ref"])
    return definitions["$defs"]


def without_defaults(schema: Schema) -> Schema:
    """Return the schema of an object with the defaults of its fields in their descriptions."""
    fields: dict[str, Schema] = schema.get("properties", {})
    return {**schema, **({"properties": {name: _without_default(fields[name]) for name in fields}} if fields else {})}


def _without_default(field: Schema) -> Schema:
    default, kept = field.get("default"), {key: value for key, value in field.items() if key != "default"}
    # The descriptions of these say what an omitted field means.
    if default in (None, [], {}):
        return kept
    before, value = field.get("description", "").removesuffix("."), json.dumps(default, ensure_ascii=False)
    return {**kept, "description": f"{before}; default: {value}." if before else f"Default: {value}."}


def _op_parameter(engine: Engine, endpoint: Endpoint) -> Schema:
    names = "|".join(engine.registry.ops)
    derived = rf"(\.({'|'.join(DERIVATIONS)})){{0,{DEEPEST}}}" if endpoint.accepts_derived else ""
    schema = {"type": "string", "pattern": f"^({names}){derived}$"}
    return {"name": "op", "in": "path", "required": True, "schema": schema, "example": _EXAMPLE}
