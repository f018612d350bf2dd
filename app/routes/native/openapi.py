"""The OpenAPI document: FastAPI's, with the operations, the gradient checks and the problem documents added."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from app.autodiff.derived import DEEPEST, DERIVATIONS
from app.requests.models import OperationAnswer, Problem
from app.requests.operations import OPERATIONS, Operation
from app.routes.native.check_models import (
    CheckAnswer,
    CheckRequest,
    ChecksAnswer,
    ChecksRequest,
    VerifyAnswer,
    VerifyRequest,
)
from app.tensors.safetensors import MEDIA_TYPE
from ops import Op

_JSON = "application/json"
_BINARY = {
    MEDIA_TYPE: {
        "schema": {
            "type": "string",
            "format": "binary",
            "description": "The tensors under their paths, such as inputs/x; other JSON fields are in the metadata, "
            "under pullback.",
        }
    }
}
# The names of derived ops.
_DERIVED = rf"^[a-z][a-z0-9_]*(\.({'|'.join(DERIVATIONS)})){{1,{DEEPEST}}}$"
_REF = "#/components/schemas/{model}"
_PROBLEM = {"application/problem+json": {"schema": {"$ref": _REF.format(model="Problem")}}}
_PROBLEMS = {
    "400": "The body does not match its content type.",
    "401": "The service needs a key, or does not know this one.",
    "403": "A page of another site sent the request, or it names a host that is not the service's.",
    "404": "Unknown op or operation.",
    "406": "The client accepts none of the formats.",
    "408": "The body did not arrive in time.",
    "413": "The body is over the byte limit.",
    "415": "The content type is missing or unsupported, or the body is compressed.",
    "422": "An invalid tensor, shape, dtype, attribute, field, mode or device, or too large a response.",
    "429": "Too many requests at a time with this key: try again after the seconds in Retry-After.",
    "500": "The op failed, or returned an invalid gradient.",
    "503": "Overloaded or draining: try again after the seconds in Retry-After.",
    "504": "The deadline passed.",
}


@dataclass(frozen=True)
class Check:
    """A route of the gradient checks: its path, models and response media types, and an example request."""

    name: str
    path: str
    summary: str
    request: type[BaseModel]
    answer: type[OperationAnswer]
    media_types: tuple[str, ...]
    example: Mapping[str, Any]


_VERIFIED = {"inputs": {"x": [1, 2, 3]}, "gradients": {"x": [2, 4, 6.54]}}
CHECKS = (
    Check("check", "/v1/ops/{op}/check", "Check the op's gradient", CheckRequest, CheckAnswer, (_JSON,), {}),
    Check("verify", "/v1/ops/{op}/verify", "Verify your gradient", VerifyRequest, VerifyAnswer, (_JSON,), _VERIFIED),
    Check(
        "checks",
        "/v1/checks",
        "Check all gradients, as a stream of events",
        ChecksRequest,
        ChecksAnswer,
        ("text/event-stream", "application/x-ndjson"),
        {"ops": ["square"]},
    ),
)


def openapi(app: FastAPI, ops: Mapping[str, Op]) -> Callable[[], dict[str, Any]]:
    """Return the function that FastAPI calls for its document; it builds the document once."""
    return cache(partial(_document, app, ops))


def _document(app: FastAPI, ops: Mapping[str, Op]) -> dict[str, Any]:
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes, tags=app.openapi_tags
    )
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas.update(_schemas())
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    for path in document["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
            operation["responses"]["default"] = {"description": "The error.", "content": _PROBLEM}
    for operation in OPERATIONS.values():
        document["paths"][f"/v1/ops/{{op}}/{operation.name}"] = {"post": _operation(operation, ops)}
    for check in CHECKS:
        document["paths"][check.path] = {"post": _check(check, ops)}
    return document


def _schemas() -> dict[str, Any]:
    described = (*OPERATIONS.values(), *CHECKS)
    requests: list[Any] = [(route.request, "validation") for route in described]
    answers: list[Any] = [(route.answer, "serialization") for route in described]
    _, definitions = models_json_schema([*requests, *answers, (Problem, "serialization")], ref_template=_REF)
    return definitions["$defs"]


def _operation(operation: Operation, ops: Mapping[str, Op]) -> dict[str, Any]:
    body, answer = _body(operation.request, _examples(operation, ops)), _answer(operation.answer, (_JSON,))
    for part in (body, answer):
        part["content"].update(_BINARY)
    return {
        "tags": ["derivatives"],
        "summary": operation.summary,
        "operationId": operation.name,
        "parameters": [_op_parameter({"anyOf": [{"enum": list(ops)}, {"pattern": _DERIVED}]}), _DEADLINE],
        "requestBody": body,
        "responses": {"200": answer, **_problems()},
    }


def _check(check: Check, ops: Mapping[str, Op]) -> dict[str, Any]:
    parameters = [_op_parameter({"enum": list(ops)}), _DEADLINE] if "{op}" in check.path else [_DEADLINE]
    return {
        "tags": ["checks"],
        "summary": check.summary,
        "operationId": check.name,
        "parameters": parameters,
        "requestBody": _body(check.request, {"square": {"value": dict(check.example)}}),
        "responses": {"200": _answer(check.answer, check.media_types), **_problems()},
    }


_DEADLINE = {
    "name": "Pullback-Deadline-Ms",
    "in": "header",
    "required": False,
    "description": "Milliseconds for the whole request, if less than the server's limit.",
    "schema": {"type": "integer", "minimum": 1},
}


def _op_parameter(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": "op", "in": "path", "required": True, "schema": {"type": "string", **schema}}


def _body(request: type[BaseModel], examples: Mapping[str, Any]) -> dict[str, Any]:
    schema = {"$ref": _REF.format(model=request.__name__)}
    return {"required": True, "content": {_JSON: {"schema": schema, "examples": dict(examples)}}}


def _answer(answer: type[OperationAnswer], media_types: Sequence[str]) -> dict[str, Any]:
    schema = {"$ref": _REF.format(model=answer.__name__)}
    return {"description": answer.__doc__, "content": {media_type: {"schema": schema} for media_type in media_types}}


def _problems() -> dict[str, Any]:
    return {status: {"description": text, "content": _PROBLEM} for status, text in _PROBLEMS.items()}


def _examples(operation: Operation, ops: Mapping[str, Op]) -> dict[str, Any]:
    """Return the ops' examples as request bodies, named ``op/example``."""
    return {
        f"{op.name}/{example.name}": {"summary": op.summary, "value": _example_body(operation, op, example.name)}
        for op in ops.values()
        for example in op.examples
        # An op whose gradient is not linear in the cotangent has no jvp.
        if operation.name != "jvp" or op.claim(op.attrs(**example.attrs)).linear
    }


def _example_body(operation: Operation, op: Op, name: str) -> dict[str, Any]:
    """Return a request body for an operation at an op's example; directions are the inputs themselves."""
    example = next(e for e in op.examples if e.name == name)
    body: dict[str, Any] = {"inputs": dict(example.inputs)}
    if example.attrs:
        body["attrs"] = dict(example.attrs)
    for required in ("tangents", "vectors"):
        if required in operation.request.model_fields:
            names = [slot.name for slot in op.inputs if op.is_differentiable(slot, op.dtypes[0])]
            body[required] = {input_name: example.inputs[input_name] for input_name in names}
    return body
