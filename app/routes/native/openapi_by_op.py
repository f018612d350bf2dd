"""The OpenAPI document with a path for each registered op, which ``/docs`` shows.

Its schemas have the names, dtypes, ranks, modes and attributes of the op, and its examples are those of the op.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from app.autodiff.binding import has_order
from app.execution.engine import Engine
from app.requests.negotiation import JSON
from app.requests.tensor_schemas import Schema, kind_of, ref, typed, untyped
from app.routes.native.catalogue import attrs_schema
from app.routes.native.openapi import without_defaults
from app.routes.protocol import differentiable
from app.tensors.dtypes import MAX_RANK
from ops import FLOATS, MODES, Example, Input, Op, Output

OP_PATHS = "/docs/openapi.json"
# The fields of directions that ``batched`` gives a leading axis.
_BATCHED = {"vjp": "cotangents", "jvp": "tangents", "hvp": "vectors"}
_SECOND_ORDER = ("hvp", "hessian")
_ALONG_INPUTS = ("tangents", "vectors", "gradients")


def by_op(general: Schema, engine: Engine) -> Schema:
    """Return the ``general`` document with a path for each op in place of those for all ops that compute."""
    ops, schemas, paths = engine.registry.ops.values(), dict(general["components"]["schemas"]), dict[str, Any]()
    for path, operations in general["paths"].items():
        if "{op}" not in path or "post" not in operations:
            paths[path] = operations
            continue
        for op in ops:
            schemas |= _tensor_components(op)
            if (described := _described(op, _endpoint(operations["post"], schemas))) is not None:
                paths[path.format(op=op.name)] = {"post": described}
    return {
        **general,
        "paths": paths,
        "components": {**general["components"], "schemas": schemas},
        "tags": [{"name": op.name, "description": op.summary, "externalDocs": _explorer(op)} for op in ops],
    }


def _explorer(op: Op) -> Schema:
    """Return the link to the page of an op in the explorer."""
    return {"description": "plot and verdict", "url": f"/explore/{op.name}"}


class _Endpoint(NamedTuple):
    """A path for all ops, as the general document describes it: its name, the schema of requests, an example."""

    name: str
    described: Schema
    request: Schema
    example: Mapping[str, Any]


def _endpoint(described: Schema, schemas: Mapping[str, Schema]) -> _Endpoint:
    media = described["requestBody"]["content"][JSON]
    name, [example] = media["schema"]["$ref"].rpartition("/")[2], media["examples"].values()
    return _Endpoint(described["operationId"], described, schemas[name], example["value"])


def _described(op: Op, endpoint: _Endpoint) -> Schema | None:
    """Return the description of an endpoint for one op, ``None`` if the op has no inputs to differentiate."""
    if any(field in endpoint.request["properties"] for field in _ALONG_INPUTS) and not differentiable(op, op.inputs):
        return None
    body = endpoint.described["requestBody"]
    examples = {each.name: {"value": _example(op, endpoint, each)} for each in _examples(op, endpoint)}
    media = {"schema": _request(op, endpoint), "examples": examples}
    return endpoint.described | {
        "tags": [op.name],
        "operationId": f"{op.name}_{endpoint.name}",
        "description": (op.doc or "").strip(),
        "parameters": [each for each in endpoint.described["parameters"] if each.get("in") != "path"],
        "requestBody": {**body, "content": {**body["content"], JSON: media}},
    }


def _request(op: Op, endpoint: _Endpoint) -> Schema:
    """Return the schema of requests to one op, from that of requests to any op."""
    general, own, properties = endpoint.request, _fields(op, endpoint), dict[str, Any]()
    for name, field in general["properties"].items():
        kept = {key: field[key] for key in ("description",) if key in field}
        is_nullable = {"type": "null"} in field.get("anyOf", ())
        if name not in own:
            properties[name] = field
        elif is_nullable:
            properties[name] = {"anyOf": [own[name], {"type": "null"}], **kept}
        else:
            properties[name] = {**own[name], **kept}
    return {**general, "properties": properties}


def _fields(op: Op, endpoint: _Endpoint) -> dict[str, Schema]:
    """Return the schemas of the fields that depend on the op."""
    floats = [dtype for dtype in op.dtypes if dtype in FLOATS]
    xs, ys = differentiable(op, op.inputs), differentiable(op, op.outputs)
    points = int("points" in endpoint.request["properties"])
    found: dict[str, Schema] = {
        "inputs": {**_tensors(op.inputs, points), "required": [slot.name for slot in op.inputs if not slot.optional]},
        "attrs": without_defaults(attrs_schema(op.attrs)),
        "dtype": {"type": "string", "enum": floats if endpoint.name == "verify" else list(op.dtypes)},
        "dtypes": {**_choice(floats), "maxItems": len(FLOATS)},
        "mode": {"type": "string", "enum": list(op.modes)},
        "modes": {**_choice(op.modes), "maxItems": len(MODES)},
        "wrt": {**_choice([slot.name for slot in op.inputs]), "uniqueItems": True},
        "of": {**_choice([slot.name for slot in op.outputs]), "uniqueItems": True},
    }
    for field in (*_ALONG_INPUTS, "cotangents"):
        slots = ys if field == "cotangents" else xs
        axes = points + (_BATCHED.get(endpoint.name) == field)
        found[field] = _tensors(slots, axes) | {"minProperties": 1} if slots else {"type": "null"}
    if not op.batching_varies and op.batching != "elementwise":
        found["diagonal"] = {"type": "boolean", "const": False}
    return found


def _choice(names: Sequence[str]) -> Schema:
    return {"type": "array", "items": {"type": "string", "enum": list(names)}, "minItems": 1}


def _tensors(slots: Sequence[Input | Output], axes: int) -> Schema:
    properties = {slot.name: {**ref(_name(slot, axes)), "description": slot.doc} for slot in slots}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _tensor_components(op: Op) -> dict[str, Schema]:
    """Return the schemas of the tensors of an op, without and with leading axes of points and of directions."""
    found: dict[str, Schema] = {}
    for slot in (*op.inputs, *op.outputs):
        for axes in (0, 1, 2):
            ranks = _ranks(slot, axes)
            forms = [*untyped(kind_of(slot.dtypes), ranks), *typed(slot.dtypes, ranks)]
            found[_name(slot, axes)] = {"anyOf": forms}
    return found


def _ranks(slot: Input | Output, axes: int) -> range:
    """Return the ranks that a slot may have, with up to so many axes in front of its own."""
    rank = len(slot.shape) - ("..." in slot.shape)
    return range(rank, MAX_RANK + 1 if "..." in slot.shape else min(rank + axes, MAX_RANK) + 1)


def _name(slot: Input | Output, axes: int) -> str:
    """Return the name of the component of a slot, which slots of the same dtypes and ranks share."""
    ranks = _ranks(slot, axes)
    return f"{'-'.join(slot.dtypes)}-rank-{ranks[0]}-{ranks[-1]}"


def _examples(op: Op, endpoint: _Endpoint) -> list[Example]:
    """Return the examples that the endpoint accepts: some claims have no jvp, and some no second order."""
    claims = {each.name: op.claim(op.attrs(**each.attrs)) for each in op.examples}
    order = 2 if endpoint.name in _SECOND_ORDER else 1
    return [
        each
        for each in op.examples
        if has_order(op, claims[each.name], order) and (endpoint.name != "jvp" or claims[each.name].linear)
    ]


def _example(op: Op, endpoint: _Endpoint, example: Example) -> Mapping[str, Any]:
    """Return a request at an example of the op; directions, and gradients to verify, are the inputs themselves."""
    if endpoint.name == "check":
        return endpoint.example
    body: dict[str, Any] = {"inputs": dict(example.inputs)}
    if example.attrs:
        body["attrs"] = dict(example.attrs)
    slots = [slot for slot in op.inputs if op.is_differentiable(slot, op.dtypes[0]) and slot.name in example.inputs]
    live = {slot.name: example.inputs[slot.name] for slot in slots}
    return body | {field: live for field in _ALONG_INPUTS if field in endpoint.request["properties"]}
