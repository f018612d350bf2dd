"""The routes of operations and checks, with their models and examples as the OpenAPI document has them."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import Path
from pydantic import BaseModel

from app.autodiff.derived import DEEPEST, DERIVATIONS
from app.http.route import Find, RawRoute
from app.kept.graphs import NAME
from app.requests.answers import JSON
from app.requests.models import ref
from app.tensors.safetensors import MEDIA_TYPE

# The op of the examples, and its input.
EXAMPLE, X = "square", (1, 2, 3)


def computation(
    path: str, find: Find, body: type[BaseModel], answer: type[BaseModel], example: Mapping[str, Any], **more: Any
) -> RawRoute:
    """Return the route of a computation, whose name is the last part of its path."""
    options: dict[str, Any] = {"openapi_extra": {"requestBody": {"content": {JSON: _examples(example)}}}, **more}
    options |= {"response_model": answer, "response_description": answer.__doc__}
    return RawRoute(path, find, methods=["POST"], operation_id=path.rpartition("/")[2], body=body, **options)


def binary(answer: type[BaseModel], example: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a route whose requests and responses may also be safetensors."""
    content = {JSON: _examples(example), MEDIA_TYPE: {"schema": ref("Safetensors")}}
    return {
        "openapi_extra": {"requestBody": {"content": content}},
        "responses": {200: {"content": {MEDIA_TYPE: {"schema": ref(answer.__name__)}}}},
    }


def op_name(ops: Sequence[str], *, accepts_derived: bool = True) -> Any:
    """Return the type of the op in a path: the pattern of the registered ``ops`` and of posted graphs.

    Ops that are derived from these have it too, unless they are excluded.
    """
    names = "|".join([*ops, NAME.pattern])
    derived = rf"(\.({'|'.join(DERIVATIONS)})){{0,{DEEPEST}}}" if accepts_derived else ""
    return Annotated[str, Path(pattern=f"^({names}){derived}$", openapi_examples=_examples(EXAMPLE)["examples"])]


def _examples(value: Any) -> dict[str, Any]:
    return {"examples": {EXAMPLE: {"value": value}}}
