"""The OpenAPI document: FastAPI's, from the models of the routes, with the errors and the schemas of tensors.

One path stands for all ops, so its schemas cannot name the inputs of an op; ``op_paths`` has a path for each op.

Clients are generated from both documents. In TypeScript, the type of an answer is the union over its media types, and a
field with a default is always there. So all media types of an answer have one schema, and no schema has a default.
"""

import json
from collections.abc import Mapping

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from app.execution.engine import Engine
from app.http.request import HEALTH
from app.requests.models import Problem
from app.requests.tensor_schemas import Schema, components, ref

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


def openapi(app: FastAPI, engine: Engine) -> Schema:
    """Return the document of the routes, with our errors in place of FastAPI's."""
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    schemas = document["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    _, problem = models_json_schema([(Problem, "serialization")], ref_template=ref("{model}")["$ref"])
    schemas |= {**components(), **problem["$defs"], "Safetensors": _SAFETENSORS}
    schemas["Device"] = {"type": "string", "enum": list(engine.devices)}
    document["components"] = {
        "schemas": {name: without_defaults(schema) for name, schema in schemas.items()},
        "responses": {status: {**described, "content": _PROBLEM} for status, described in _PROBLEMS.items()},
        "parameters": {"deadline": _DEADLINE},
    }
    for path in document["paths"].values():
        for operation in path.values():
            operation["responses"] = {"200": operation["responses"]["200"], **_REFUSALS}
            operation["parameters"] = [*operation.get("parameters", ()), {"$ref": "#/components/parameters/deadline"}]
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
