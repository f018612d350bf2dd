"""The OpenAPI document: FastAPI's, from the models of the routes, with the errors and the schemas of tensors.

One path stands for all ops, so its schemas cannot name the inputs of an op; ``GET /v1/ops/{op}`` does.

Clients are generated from the document. In TypeScript, the type of an answer is the union over its media types, and a
field with a default is always there. So all media types of an answer have one schema, and no schema has a default.
"""

import inspect
import json
from collections.abc import Mapping

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from app.errors import PullbackError
from app.execution.engine import Engine
from app.http.key_file import HEALTH
from app.http.route import RawRoute
from app.kept.job_records import MOST_KEY
from app.requests.answers import Problem
from app.requests.models import Schema, components, ref

_SAFETENSORS: Schema = {
    "type": "string",
    "format": "binary",
    "description": "The tensors under their paths, such as inputs/x; other JSON fields are in the metadata, under "
    "pullback.",
}
_PROBLEM = {"application/problem+json": {"schema": ref("Problem")}}
_SECONDS = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer", "minimum": 0}}}
_HEADERS: Mapping[int, Schema] = {
    401: {"WWW-Authenticate": {"description": "The schemes of a key.", "schema": {"type": "string"}}},
    405: {"Allow": {"description": "The methods of the path.", "schema": {"type": "string"}}},
    429: _SECONDS,
    503: _SECONDS,
}
_QUOTA: Mapping[str, Schema] = {
    "RateLimit-Policy": {"description": "The quotas of the key.", "schema": {"type": "string"}},
    "RateLimit": {"description": "What is left of them.", "schema": {"type": "string"}},
}
SUCCESS = ("200", "201", "204")
_DEADLINE: Schema = {
    "name": "Pullback-Deadline-Ms",
    "in": "header",
    "required": False,
    "description": "Milliseconds for the whole request, if less than the server's limit.",
    "schema": {"type": "integer", "minimum": 1, "maximum": 10**18 - 1},
}


_OF_OPERATIONS: Mapping[str, Schema] = {
    "verdict": {
        "name": "Require-Verdict",
        "in": "header",
        "required": False,
        "description": "pass: an op without a current verdict pass is refused (412).",
        "schema": {"type": "string", "enum": ["pass"]},
    },
    "prefer": {
        "name": "Prefer",
        "in": "header",
        "required": False,
        "description": "respond-async: the answer is 202 with a JobState, and that of the request is the result of the "
        "job.",
        "schema": {"type": "string"},
    },
    "idempotency": {
        "name": "Idempotency-Key",
        "in": "header",
        "required": False,
        "description": f"With Prefer: respond-async, the same key finds the same job; at most {MOST_KEY} characters.",
        "schema": {"type": "string"},
    },
}


def openapi(app: FastAPI, engine: Engine) -> Schema:
    """Return the document of the routes, with our errors in place of FastAPI's."""
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    schemas = document["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    _, problem = models_json_schema([(Problem, "serialization")], ref_template=ref("{model}")["$ref"])
    schemas |= {**components(), **problem["$defs"], "Safetensors": _SAFETENSORS}
    schemas["Device"] = {"type": "string", "enum": list(engine.devices)}
    responses = _problems()
    refusals = {status: {"$ref": f"#/components/responses/{status}"} for status in responses}
    document["components"] = {
        "schemas": {name: without_defaults(schema) for name, schema in schemas.items()},
        "responses": responses,
        "parameters": {"deadline": _DEADLINE, **_OF_OPERATIONS},
    }
    operations = {route.path for route in app.routes if isinstance(route, RawRoute) and route.may_be_job}
    for path, item in document["paths"].items():
        for method, operation in item.items():
            answers = {status: answer for status, answer in operation["responses"].items() if status in SUCCESS}
            operation["responses"] = {**answers, **refusals}
            operation["parameters"] = [*operation.get("parameters", ()), {"$ref": "#/components/parameters/deadline"}]
            if method == "post" and path in operations:
                operation["parameters"] += [{"$ref": f"#/components/parameters/{name}"} for name in _OF_OPERATIONS]
    return document


def _problems() -> dict[str, Schema]:
    """Return the responses for errors by status; the errors describe themselves."""
    found: dict[str, Schema] = {}
    for error in sorted(PullbackError.__subclasses__(), key=lambda error: error.status):
        response = found.setdefault(str(error.status), {"description": "", "content": _PROBLEM})
        response["description"] = f"{response['description']} {inspect.getdoc(error)}".replace("``", "`").lstrip()
        if error.status in _HEADERS:
            response["headers"] = _HEADERS[error.status]
    return found


def with_keys(document: Schema) -> Schema:
    """Return a document in which every path needs a key, except the probes."""
    scheme = {"type": "http", "scheme": "bearer", "description": "A key of the service's file of keys."}
    document["components"]["securitySchemes"] = {"key": scheme}
    document["security"] = [{"key": []}]
    # Those of the quotas of a key, if it has any.
    document["components"]["responses"]["429"]["headers"] |= _QUOTA
    for path, operations in document["paths"].items():
        if path.startswith(HEALTH):
            for operation in operations.values():
                operation["security"] = []
    return document


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
