"""The models of the requests of every operation, for validation and for the OpenAPI document.

Lists of numbers are not validated here: a model accepts any value for a tensor, and the tensor codec reads it.
``app.requests.models`` describes tensors for the document.
"""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from app.tensors.casting import DIGITS
from app.tensors.dtypes import COMPLEX, DTYPES, MAX_DIMENSION, MAX_RANK
from app.tensors.layouts import Encoding
from ops import Mode

Schema: TypeAlias = dict[str, Any]
Kind: TypeAlias = Literal["Number", "Integer", "Boolean"]

_SCALARS: dict[Kind, Schema] = {
    "Number": {"anyOf": [{"type": "number"}, {"type": "string", "enum": ["NaN", "Infinity", "-Infinity"]}]},
    "Integer": {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": f"^{DIGITS.pattern}$"}]},
    "Boolean": {"type": "boolean"},
}
_BASE64 = r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
RANKS = range(MAX_RANK + 1)


# A schema cannot require lists of equal length, or data that fit a shape: the tensor codec (``app.tensors.json``)
# does.
def ref(name: str) -> Schema:
    """Return a reference to a component."""
    return {"$ref": f"#/components/schemas/{name}"}


def nested(kind: Kind, rank: int) -> Schema:
    """Return the schema of lists nested as deep as ``rank``; rank 0 is an element without a list."""
    return ref(f"{kind}{rank}" if rank else kind)


def typed(kind: Kind, dtypes: Sequence[str]) -> list[Schema]:
    """Return the schemas of tensors with a dtype and a shape: with data, flat or nested, and with base64."""
    sizes = {"type": "integer", "minimum": 0, "maximum": MAX_DIMENSION}
    shape = {"type": "array", "items": sizes, "minItems": min(RANKS), "maxItems": max(RANKS)}
    content: Schema = {
        "data": {"anyOf": [nested(kind, rank) for rank in RANKS]},
        "base64": {"type": "string", "contentEncoding": "base64", "pattern": _BASE64},
    }
    return [
        {
            "type": "object",
            "properties": {"dtype": {"type": "string", "enum": list(dtypes)}, "shape": shape, key: value},
            "required": ["dtype", "shape", key],
            "additionalProperties": False,
        }
        for key, value in content.items()
    ]


def components() -> dict[str, Schema]:
    """Return the components by name: an element and its nested lists of each kind, and tensors of any dtype and rank.

    ``Tensor`` is what a request may have, and ``TypedTensor`` what an answer has.
    """
    found: dict[str, Schema] = {**_SCALARS}
    for kind in _SCALARS:
        found |= {f"{kind}{rank}": {"type": "array", "items": nested(kind, rank - 1)} for rank in RANKS if rank}
    forms: dict[str, tuple[Kind, list[str]]] = {
        "FloatTensor": ("Number", [name for name, row in DTYPES.items() if row.is_float]),
        "IntegerTensor": ("Integer", [name for name, row in DTYPES.items() if not (row.is_float or row.is_bool)]),
        "ComplexTensor": ("Number", list(COMPLEX)),
        "BooleanTensor": ("Boolean", [name for name, row in DTYPES.items() if row.is_bool]),
    }
    for name, (kind, dtypes) in forms.items():
        found[name], found[f"{name}Base64"] = typed(kind, dtypes)
    found["TypedTensor"] = {"anyOf": [ref(name) for form in forms for name in (form, f"{form}Base64")]}
    plain = [nested(kind, rank) for kind in ("Number", "Boolean") for rank in RANKS]
    found["Tensor"] = {"anyOf": [*plain, *found["TypedTensor"]["anyOf"]]}
    return found


TensorIn = Annotated[Any, WithJsonSchema(ref("Tensor"))]
# A field that is one tensor: beside its description, pydantic would look for a bare reference.
OneTensorIn = Annotated[Any, WithJsonSchema({"anyOf": [ref("Tensor")]})]
# Bounds that the service checks after the models, where it can name what the op expects.
Dtype = Annotated[str, WithJsonSchema({"type": "string", "enum": [*DTYPES, *COMPLEX]})]
Device = Annotated[str, WithJsonSchema(ref("Device"))]
Attributes = dict[str, Annotated[Any, WithJsonSchema({"type": ["number", "string", "boolean"]})]]

# No op has so many names: longer collections are refused before their items are validated.
MAX_NAMES = 64
# The names of inputs and outputs, as JSON Schema: those of derived ops may be longer than an op's own.
NAMES = "^[A-Za-z][A-Za-z0-9_]*$"
Name = Annotated[str, WithJsonSchema({"type": "string", "pattern": NAMES})]
Tensors = Annotated[
    dict[str, TensorIn],
    Field(max_length=MAX_NAMES, json_schema_extra={"minProperties": 1, "propertyNames": {"pattern": NAMES}}),
]
Names = Annotated[list[Name], Field(max_length=MAX_NAMES, json_schema_extra={"minItems": 1, "uniqueItems": True})]

Cotangents = Annotated[
    Tensors | None, Field(description="A cotangent for some of the outputs, zeros for the rest; omitted: ones for all.")
]
Wrt = Annotated[
    Names | None,
    Field(description="The inputs and parameters to differentiate with respect to; omitted: all inputs."),
]
Parameters = Annotated[
    str | None,
    Field(max_length=64, description="The digest of the values of the op's parameters; omitted: those of its page."),
]
Sparse = Annotated[
    Literal["coo", "csr"] | None,
    Field(description="Return each block as a sparse matrix of two axes: by row and column, or compressed rows."),
]
SparsityId = Annotated[
    str | None, Field(description="With `sparse`, the id of the sparsity to use; omitted: one that is known, or found.")
]
Batched = Annotated[bool, Field(description="Give the directions a leading axis: many of them in one call.")]


class OperationRequest(BaseModel):
    """The fields of every request."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    inputs: Tensors = Field(description="The op's inputs, by name.")
    attrs: Annotated[Attributes, Field(max_length=MAX_NAMES)] = Field(
        default_factory=dict, description="The op's attributes; omitted ones have their defaults."
    )
    dtype: Dtype | None = Field(default=None, description="The dtype of the op's type variable; omitted: its first.")
    mode: Mode | None = Field(
        default=None, description="How TensorFlow runs it; omitted: the catalogue's default_mode."
    )
    device: Device | None = Field(default=None, description="cpu or gpu:N; omitted: the server's choice.")
    encoding: Encoding = Field(default="nested", description="How tensors are written in the response.")
    parameters: Parameters = None


_PARTIAL_NEEDS_POINTS: Any = {
    "dependentSchemas": {
        "partial": {
            "anyOf": [
                {"properties": {"partial": {"const": False}}},
                {"properties": {"points": {"const": True}}, "required": ["points"]},
            ]
        }
    }
}


class PointsRequest(OperationRequest):
    """The fields of a request at one point or at many."""

    model_config = ConfigDict(json_schema_extra=_PARTIAL_NEEDS_POINTS)

    points: bool = Field(
        default=False, description="Give each input and direction a leading axis of points; each answer has it too."
    )
    partial: bool = Field(
        default=False, description="With `points`: answer the other points if some fail, and name these in `failed`."
    )
    digits: bool = Field(
        default=False, description="Estimate the rounding error of each number of the answer, in `uncertainty`."
    )


class BatchedRequest(PointsRequest):
    """The fields of a request for products."""

    batched: Batched = False


class ForwardRequest(PointsRequest):
    """The point where the op is evaluated."""


class GradientsRequest(PointsRequest):
    """The point, and the order of differentiation."""

    order: int = Field(default=1, ge=1, le=4, description="The highest order.")
    cotangents: Cotangents = None
    wrt: Wrt = None


class LinearizeRequest(OperationRequest):
    """The point to linearize at, and the inputs to differentiate with respect to."""

    WHY_ONE_POINT: ClassVar[str] = (
        "a linearization has one point, which is kept, renewed and freed by itself: linearize at each point, or send "
        "points to vjp, jvp or hvp"
    )

    wrt: Wrt = None


class ProductRequest(BaseModel):
    """The fields of every request for a product at a point that was linearized."""

    WHY_ONE_POINT: ClassVar[str] = LinearizeRequest.WHY_ONE_POINT
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    batched: Batched = False
    encoding: Encoding = Field(default="nested", description="How tensors are written in the response.")


class VjpThereRequest(ProductRequest):
    """The cotangents to pull back to a point that was linearized."""

    cotangents: Cotangents = None


class JvpThereRequest(ProductRequest):
    """The tangents to push forward from a point that was linearized."""

    tangents: Tensors = Field(description="A tangent for some of the inputs, zeros for the rest.")


class HvpThereRequest(ProductRequest):
    """The cotangents that weight the outputs, and the vectors, at a point that was linearized."""

    vectors: Tensors = Field(description="A vector for some of the inputs, zeros for the rest.")
    cotangents: Cotangents = None


class VjpRequest(BatchedRequest):
    """The point and the cotangents to pull back."""

    model_config = ConfigDict(
        json_schema_extra=_PARTIAL_NEEDS_POINTS
        | {
            "if": {"properties": {"batched": {"const": True}}, "required": ["batched"]},
            "then": {"properties": {"cotangents": {"type": "object"}}, "required": ["cotangents"]},
        }
    )

    cotangents: Cotangents = None
    wrt: Wrt = None
    outputs: bool = Field(default=False, description="Return the outputs as well.")


class JvpRequest(BatchedRequest):
    """The point and the tangents to push forward."""

    tangents: Tensors = Field(description="A tangent for some of the inputs, zeros for the rest.")


class JacobianRequest(PointsRequest):
    """The point, and the blocks to compute."""

    wrt: Wrt = None
    of: Names | None = Field(default=None, description="The outputs to differentiate; omitted: all.")
    sparse: Sparse = None
    sparsity: SparsityId = None


class Nonzeros(BaseModel):
    """Where a block may have nonzeros."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    rows: OneTensorIn = Field(description="The row of each: the number of the output, in row-major order.")
    columns: OneTensorIn = Field(description="The column of each: the number of the input.")


class GivenPattern(BaseModel):
    """A pattern that the client knows."""

    pattern: dict[str, dict[str, Nonzeros]] | None = Field(
        default=None, description="Where the derivative may have nonzeros; omitted: the service finds out."
    )


class SparsityRequest(OperationRequest, GivenPattern):
    """The point where the sparsity is found and verified, and the blocks of the derivative."""

    WHY_ONE_POINT: ClassVar[str] = "a sparsity is found at one point, and used again at every other"

    order: Literal[1, 2] = Field(default=1, description="1 for the Jacobian, 2 for the Hessian.")
    cotangents: Cotangents = None
    wrt: Wrt = None
    of: Names | None = Field(default=None, description="The outputs of the Jacobian; omitted: all.")


class HvpRequest(BatchedRequest):
    """The point, the cotangents that weight the outputs, and the vectors."""

    vectors: Tensors = Field(description="A vector for some of the inputs, zeros for the rest.")
    cotangents: Cotangents = None
    wrt: Wrt = None


class HessianRequest(PointsRequest):
    """The point, the cotangents that weight the outputs, and the blocks to compute."""

    cotangents: Cotangents = None
    wrt: Wrt = None
    diagonal: bool = Field(default=False, description="Only the diagonal, for elementwise ops.")
    sparse: Sparse = None
    sparsity: SparsityId = None
