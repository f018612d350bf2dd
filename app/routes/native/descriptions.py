"""What the routes of operations and checks have in common in the OpenAPI document."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Path

from app.autodiff.derived import DEEPEST, DERIVATIONS
from app.execution.engine import Engine
from app.requests.negotiation import JSON
from app.requests.tensor_schemas import Schema

# The op of the examples, and its input.
EXAMPLE, X = "square", (1, 2, 3)


def op_name(engine: Engine, *, accepts_derived: bool = True) -> Any:
    """Return the type of the op in a path: the pattern of registered ops and, unless excluded, of derived ones."""
    derived = rf"(\.({'|'.join(DERIVATIONS)})){{0,{DEEPEST}}}" if accepts_derived else ""
    pattern = f"^({'|'.join(engine.registry.ops)}){derived}$"
    return Annotated[str, Path(pattern=pattern, openapi_examples={EXAMPLE: {"value": EXAMPLE}})]


def request_body(example: Mapping[str, Any], others: Mapping[str, Schema] | None = None) -> dict[str, Any]:
    """Return what a route adds to its model: an example, and the schemas of bodies of ``others`` than JSON."""
    content = {JSON: {"examples": {EXAMPLE: {"value": example}}}}
    return {"requestBody": {"content": content | {kind: {"schema": schema} for kind, schema in (others or {}).items()}}}
