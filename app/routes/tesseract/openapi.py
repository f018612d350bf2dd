"""The endpoints of an op as a Tesseract, and the OpenAPI document that describes them.

From that document, clients also read the input and output arrays, and which of them are differentiable.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.autodiff.binding import has_order
from app.autodiff.derived import variant_of
from app.autodiff.symbolic_shapes import shape_text
from app.requests.models import Schema, ref
from app.routes.protocol import differentiable
from app.tensors.dtypes import COMPLEX, DTYPES, MAX_RANK
from ops import Input, Op, Output
from pullback import __version__

ENCODINGS = ("base64", "json", "raw")
OUTPUT_FORMATS = ("json", "json+base64")


@dataclass(frozen=True)
class Endpoint:
    """An endpoint that computes: its native operation, and the names of its fields.

    The fields ``inputs`` and ``outputs`` list what to differentiate; ``directions`` has an array for each name in the
    field ``along``. Each is empty if the endpoint has no such field.
    """

    name: str
    summary: str
    operation: str
    inputs: str = ""
    outputs: str = ""
    directions: str = ""
    along: str = ""

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of a request, all of them required."""
        return tuple(filter(None, ("inputs", self.inputs, self.outputs, self.directions)))


APPLY, JACOBIAN, JVP, VJP = ENDPOINTS = (
    Endpoint("apply", "Evaluate the outputs", "forward"),
    Endpoint("jacobian", "Differentiate outputs with respect to inputs", "jacobian", "jac_inputs", "jac_outputs"),
    Endpoint(
        "jacobian_vector_product",
        "Push tangents forward to the outputs",
        "jvp",
        "jvp_inputs",
        "jvp_outputs",
        "tangent_vector",
        along="jvp_inputs",
    ),
    Endpoint(
        "vector_jacobian_product",
        "Pull cotangents back to the inputs",
        "vjp",
        "vjp_inputs",
        "vjp_outputs",
        "cotangent_vector",
        along="vjp_outputs",
    ),
)


def endpoints(op: Op) -> dict[str, Endpoint]:
    """Return the endpoints of an op that compute, by name.

    An op whose gradient is not linear in the cotangent has no jvp, and no Jacobian, because clients multiply the
    Jacobian by vectors. For the same reason, an op with complex numbers has one only if it is holomorphic in all
    inputs. Cotangents are those of JAX, whose client transposes without a conjugate.
    """
    found = [APPLY]
    claim = op.claim(op.attrs())
    if differentiable(op, op.inputs) and differentiable(op, op.outputs) and has_order(op, claim, 1):
        found += (JACOBIAN, JVP, VJP) if claim.linear else (VJP,)
    if op.is_complex and not (op.holomorphic and all(slot.is_complex for slot in differentiable(op, op.inputs))):
        found = [endpoint for endpoint in found if endpoint is not JACOBIAN]
    return {endpoint.name: endpoint for endpoint in found}


def has_abstract_eval(op: Op) -> bool:
    """Return whether the shapes of the inputs and the attributes determine the shapes of the outputs."""
    known = {symbol for slot in op.inputs for symbol in slot.shape} | set(op.attrs.static_names())
    return op.sizes is not None or all(
        isinstance(symbol, int) or symbol in known for slot in op.outputs for symbol in slot.shape
    )


def openapi(op: Op) -> Schema:
    """Return the OpenAPI document of an op."""
    return {
        "openapi": "3.1.0",
        "info": {"title": op.name, "description": op.summary, "version": __version__},
        "paths": _paths(op),
        "components": {"schemas": _schemas(op)},
        "x-supported-output-formats": list(OUTPUT_FORMATS),
        "x-supported-gpu-transports": ["none"],
        "x-supported-compressions": ["none"],
    }


def _paths(op: Op) -> Schema:
    paths = {f"/{endpoint.name}": _path(endpoint.name, endpoint.summary) for endpoint in endpoints(op).values()}
    if has_abstract_eval(op):
        paths["/abstract_eval"] = _path("abstract_eval", "Return the shapes and dtypes of the outputs")
    answers = {"200": _content("The op is available", {"type": "object"})}
    return paths | {
        "/health": {"get": {"operationId": "health", "summary": "Check that the op is available", "responses": answers}}
    }


def _path(name: str, summary: str) -> Schema:
    answers = {
        "200": _content("The response", ref(_answer_name(name))),
        "422": _content("The request is invalid", ref("Faults")),
    }
    body = _content("The request", ref(_request_name(name))) | {"required": True}
    return {"post": {"operationId": name, "summary": summary, "requestBody": body, "responses": answers}}


def _content(description: str, schema: Schema) -> Schema:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _schemas(op: Op) -> Schema:
    inputs, outputs = (_slots(op, slots) for slots in (op.inputs, op.outputs))
    needed = [slot.name for slot in op.inputs if not slot.optional]
    always = [slot.name for slot in variant_of(op, {}).outputs]
    return {
        "Apply_InputSchema": _object(inputs | _attributes(op), required=needed),
        "Apply_OutputSchema": _object(outputs, required=always),
        **{_request_name(name): _request(op, endpoint) for name, endpoint in endpoints(op).items()},
        **{_answer_name(name): _answer(op, endpoint) for name, endpoint in endpoints(op).items()},
        "AbstractEvalInputSchema": _object(
            {"inputs": _object(_abstract(op.inputs) | _attributes(op), required=needed)}
        ),
        "AbstractEvalOutputSchema": _object(_abstract(op.outputs), required=always),
        "ArrayData": _object({"buffer": _BUFFER, "encoding": {"enum": list(ENCODINGS)}}),
        "Array": _array((*DTYPES, *COMPLEX), "An array with the shape and dtype that the op declares."),
        "Faults": _FAULTS,
    }


def _request(op: Op, endpoint: Endpoint) -> Schema:
    """Return the schema of a request; that of ``apply`` also lists the differentiable arrays."""
    names = {endpoint.inputs: differentiable(op, op.inputs), endpoint.outputs: differentiable(op, op.outputs)}
    fields: Schema = {"inputs": ref("Apply_InputSchema")}
    fields |= {field: _names(slots) for field, slots in names.items() if field}
    if endpoint.along:
        fields[endpoint.directions] = _object({slot.name: ref("Array") for slot in names[endpoint.along]}, required=())
    arrays = {"differentiable_arrays": _differentiable(op, op.inputs)} if endpoint is APPLY else {}
    return _object(fields) | arrays


def _answer(op: Op, endpoint: Endpoint) -> Schema:
    if endpoint is APPLY:
        return ref("Apply_OutputSchema") | {"differentiable_arrays": _differentiable(op, op.outputs)}
    columns = _object({slot.name: ref("Array") for slot in differentiable(op, op.inputs)}, required=())
    rows = {slot.name: ref("Array") for slot in differentiable(op, op.outputs)}
    if endpoint is JACOBIAN:
        return _object(dict.fromkeys(rows, columns), required=())
    return columns if endpoint is VJP else _object(rows, required=())


def _differentiable(op: Op, slots: Sequence[Input | Output]) -> Schema:
    """Return the dtypes and shapes of the differentiable inputs or outputs.

    Without a shape, clients would add a leading axis of points to some arrays, and one of length 1 to others.
    """
    return {
        slot.name: {"dtype": op.shown_dtype_of(slot, op.dtypes[0]), "shape": _shape(slot)}
        for slot in differentiable(op, slots)
    }


def _shape(slot: Input | Output) -> list[int | None] | None:
    """Return the shape of an array: ``None`` for a dimension of any size, ``None`` alone for any rank."""
    if "..." in slot.shape:
        return None
    return [size if isinstance(size, int) else None for size in slot.shown_shape]


def _slots(op: Op, slots: Sequence[Input | Output]) -> Schema:
    flags = [slot.name for slot in differentiable(op, slots)]
    return {
        slot.name: _array(slot.shown_dtypes, f"{slot.doc or slot.name}, of shape {shape_text(slot.shown_shape)}")
        | {"array_flags": ["DIFFERENTIABLE"] if slot.name in flags else []}
        for slot in slots
    }


def _array(dtypes: Sequence[str], description: str) -> Schema:
    """Return the schema of an array with these dtypes."""
    fields: Schema = {
        "object_type": {"const": "array", "default": "array"},
        "shape": _SIZES,
        "dtype": {"enum": list(dtypes)},
        "data": ref("ArrayData"),
    }
    return _object(fields, required=("shape", "dtype", "data")) | {"description": description}


def _abstract(slots: Sequence[Input | Output]) -> Schema:
    return {
        slot.name: {
            "type": "object",
            "properties": {"shape": _SIZES, "dtype": {"enum": list(slot.shown_dtypes)}},
            "required": ["shape", "dtype"],
        }
        for slot in slots
    }


def _attributes(op: Op) -> Schema:
    return op.attrs.model_json_schema()["properties"] if op.attrs.model_fields else {}


def _names(slots: Iterable[Input | Output]) -> Schema:
    return {"type": "array", "items": {"enum": [slot.name for slot in slots]}, "minItems": 1, "uniqueItems": True}


def _object(fields: Mapping[str, Any], *, required: Iterable[str] | None = None) -> Schema:
    """Return the schema of an object with these fields and no others, all required by default."""
    needed = list(fields if required is None else required)
    return {"type": "object", "properties": dict(fields), "required": needed, "additionalProperties": False}


def _request_name(name: str) -> str:
    return f"{_title(name)}InputSchema"


def _answer_name(name: str) -> str:
    return f"{_title(name)}OutputSchema"


def _title(name: str) -> str:
    return "".join(map(str.capitalize, name.split("_")))


_SIZES: Schema = {"type": "array", "items": {"type": "integer", "minimum": 0}, "maxItems": MAX_RANK}
_BUFFER: Schema = {
    "description": "The numbers in base64, little-endian, row-major; or as lists, nested like the shape."
}
_FAULT = {
    "type": {"type": "string"},
    "loc": {"type": "array", "items": {"type": ["string", "integer"]}},
    "msg": {"type": "string"},
    "input": {},
    "ctx": {"type": "object"},
}
_FAULTS = _object({"detail": {"type": "array", "items": _object(_FAULT)}})
