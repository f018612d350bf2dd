"""The OpenAPI document: FastAPI's own, with the operations of ``app.routes.operations`` and our problem documents."""

from collections.abc import Callable, Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from app.routes.operations import OPERATIONS, Operation
from app.routes.wire import Problem
from ops import Op

_REF = "#/components/schemas/{model}"
_PROBLEM = {"application/problem+json": {"schema": {"$ref": _REF.format(model="Problem")}}}
_PROBLEMS = {
    "400": "The body is not JSON.",
    "404": "No such op or operation.",
    "406": "No format that the client accepts.",
    "408": "The body was too slow.",
    "413": "The body is over the byte limit.",
    "415": "No content type, another than application/json, or a compressed body.",
    "422": "Valid JSON that is wrong: a tensor, shape, dtype, attribute, field, mode, device, or too large an answer.",
    "500": "The op failed, or its gradient is no gradient.",
    "503": "Overloaded or draining: try again after the Retry-After header's seconds.",
    "504": "The deadline passed.",
}


def openapi(app: FastAPI, ops: Mapping[str, Op]) -> Callable[[], dict[str, Any]]:
    """Return what FastAPI calls for its document, which is made once."""
    made: dict[str, Any] = {}

    def document() -> dict[str, Any]:
        if not made:
            made.update(_document(app, ops))
        return made

    return document


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
            operation["responses"]["default"] = {"description": "What is wrong.", "content": _PROBLEM}
    for operation in OPERATIONS.values():
        document["paths"][f"/v1/ops/{{op}}/{operation.name}"] = {"post": _operation(operation, ops)}
    return document


def _schemas() -> dict[str, Any]:
    requests: list[Any] = [(operation.request, "validation") for operation in OPERATIONS.values()]
    answers: list[Any] = [(operation.answer, "serialization") for operation in OPERATIONS.values()]
    _, definitions = models_json_schema([*requests, *answers, (Problem, "serialization")], ref_template=_REF)
    return definitions["$defs"]


def _operation(operation: Operation, ops: Mapping[str, Op]) -> dict[str, Any]:
    answer = {"schema": {"$ref": _REF.format(model=operation.answer.__name__)}}
    request = {"schema": {"$ref": _REF.format(model=operation.request.__name__)}, "examples": _examples(operation, ops)}
    problems = {status: {"description": text, "content": _PROBLEM} for status, text in _PROBLEMS.items()}
    names = {"type": "string", "enum": list(ops)}
    return {
        "tags": ["derivatives"],
        "summary": operation.summary,
        "operationId": operation.name,
        "parameters": [
            {"name": "op", "in": "path", "required": True, "schema": names},
            {
                "name": "Pullback-Deadline-Ms",
                "in": "header",
                "required": False,
                "description": "Milliseconds for the whole request, if fewer than the server allows.",
                "schema": {"type": "integer", "minimum": 1},
            },
        ],
        "requestBody": {"required": True, "content": {"application/json": request}},
        "responses": {
            "200": {"description": operation.answer.__doc__, "content": {"application/json": answer}},
            **problems,
        },
    }


def _examples(operation: Operation, ops: Mapping[str, Op]) -> dict[str, Any]:
    """Return the ops' own examples as request bodies, by ``op/example``."""
    return {
        f"{op.name}/{example.name}": {"summary": op.summary, "value": example_body(operation, op, example.name)}
        for op in ops.values()
        for example in op.examples
        # A gradient that is not linear in the cotangent has no jvp.
        if operation.name != "jvp" or op.claim(op.attrs(**example.attrs)).linear
    }


def example_body(operation: Operation, op: Op, name: str) -> dict[str, Any]:
    """Return a request body for an operation at an op's example; directions are the inputs themselves."""
    example = next(e for e in op.examples if e.name == name)
    body: dict[str, Any] = {"inputs": dict(example.inputs)}
    if example.attrs:
        body["attrs"] = dict(example.attrs)
    for required in ("tangents", "vectors"):
        if required in operation.request.model_fields:
            live = [slot.name for slot in op.inputs if op.is_differentiable(slot, op.dtypes[0])]
            body[required] = {input_name: example.inputs[input_name] for input_name in live}
    return body
