"""The models of the requests and responses of every operation, for validation and for the OpenAPI document.

Lists of numbers are not validated here: a model accepts any value for a tensor, and the tensor codec reads it.
``app.requests.tensor_schemas`` describes tensors for the document.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from app.requests.tensor_schemas import ref
from app.tensors.dtypes import DTYPES
from app.tensors.layouts import Encoding
from ops import Mode

TensorIn = Annotated[Any, WithJsonSchema(ref("Tensor"))]
TensorOut = Annotated[Any, WithJsonSchema(ref("TypedTensor"))]
# A field that is one tensor: beside its description, pydantic would look for a bare reference.
OneTensorIn = Annotated[Any, WithJsonSchema({"anyOf": [ref("Tensor")]})]
OneTensorOut = Annotated[Any, WithJsonSchema({"anyOf": [ref("TypedTensor")]})]
TensorOrNull = Annotated[Any, WithJsonSchema({"anyOf": [ref("TypedTensor"), {"type": "null"}]})]
# Bounds that the service checks after the models, where it can name what the op expects.
Dtype = Annotated[str, WithJsonSchema({"type": "string", "enum": list(DTYPES)})]
Device = Annotated[str, WithJsonSchema(ref("Device"))]
Attributes = dict[str, Annotated[Any, WithJsonSchema({"type": ["number", "string", "boolean"]})]]
Reason = Literal["not_differentiable", "disconnected", "not_sent"]
Absences = dict[str, Reason]

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

    WHY_ONE_POINT: ClassVar[str] = "a linearization has one point, which is kept, renewed and freed by itself"

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


ABSENT: Any = Field(default_factory=dict[str, Any], description="Only if a derivative is null: why.")


class OperationAnswer(BaseModel):
    """The base of every response."""

    model_config = ConfigDict(extra="forbid")


class ProblemEntry(BaseModel):
    """One error."""

    loc: list[str | int] = Field(description="The location in the request.")
    message: str
    expected: str
    got: str


class PointError(BaseModel):
    """The error at a point."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[ProblemEntry] = Field(description="The first error.")


class FailedPoint(BaseModel):
    """A point that failed: in its row, floats are NaN, integers the least number, and bools false."""

    point: int
    error: PointError


class PointsAnswer(OperationAnswer):
    """The base of every response at one point or at many."""

    failed: list[FailedPoint] = Field(default=[], description="Only with `partial`: the points that failed.")


class ForwardAnswer(PointsAnswer):
    """The outputs."""

    outputs: dict[str, TensorOut]


class Kept(OperationAnswer):
    """A linearization that the service keeps for a time."""

    id: str = Field(description="Of the paths /v1/linearizations/{id}, for the key that made it.")
    bytes: int = Field(description="The memory that it takes, of the room for all.")
    expires_s: int = Field(description="In how many seconds it ends; PATCH renews it.")


class LinearizeAnswer(OperationAnswer):
    """The outputs, and the linearization, if it is worth keeping."""

    outputs: dict[str, TensorOut]
    linearization: Kept | None
    reason: str = Field(default="", description="Only if there is none: why.")


class GradientsAnswer(PointsAnswer):
    """The outputs, and one entry per order."""

    outputs: dict[str, TensorOut]
    gradients: list[dict[str, TensorOrNull]]
    absent: list[Absences] = Field(default=[], description="Only if a gradient is null: why, one entry per order.")


class VjpAnswer(PointsAnswer):
    """The cotangents of the inputs; with ``batched``, along a leading axis."""

    outputs: dict[str, TensorOut] = Field(default={}, description="Only if requested.")
    gradients: dict[str, TensorOrNull]
    absent: Absences = ABSENT


class JvpAnswer(PointsAnswer):
    """The tangents of the outputs; with ``batched``, along a leading axis."""

    tangents: dict[str, TensorOrNull]
    absent: Absences = ABSENT


class SparseMatrix(OperationAnswer):
    """A sparse matrix; its rows and columns are the numbers of two slots, in row-major order.

    Nonzeros are sorted by row and then column. ``coo`` has the row of each, ``csr`` where each row begins and ends.
    """

    shape: tuple[int, int]
    rows: OneTensorOut = Field(default=None, description="Of coo: the row of each nonzero.")
    indptr: OneTensorOut = Field(default=None, description="Of csr: where each row begins, and the number of nonzeros.")
    columns: OneTensorOut
    values: OneTensorOut


MatrixOrNull = SparseMatrix | TensorOrNull
SPARSITY: Any = Field(default="", description="With `sparse`: the id of the sparsity, for later requests.")


class JacobianAnswer(PointsAnswer):
    """Blocks ``[output][input]`` of shape ``(*output, *input)``, or with ``sparse`` of two axes."""

    jacobian: dict[str, dict[str, MatrixOrNull]]
    sparsity: str = SPARSITY
    absent: dict[str, Absences] = ABSENT


class SparsityAbout(OperationAnswer):
    """A sparsity that the service keeps, until it needs the room."""

    id: str | None = Field(description="For the field `sparsity` of requests with the same key; null: no room.")
    nonzeros: int
    colors: int = Field(description="How many products a sparse matrix takes, apart from those that verify it.")


class SparsityAnswer(OperationAnswer):
    """The sparsity of a derivative."""

    sparsity: SparsityAbout


class HvpAnswer(PointsAnswer):
    """Products ``[input]``; with ``batched``, along a leading axis."""

    products: dict[str, TensorOrNull]
    absent: Absences = ABSENT


class HessianAnswer(PointsAnswer):
    """Blocks ``[input][input]`` of shape ``(*input, *input)``, or with ``diagonal`` the diagonal of each input.

    With ``sparse``, a block has two axes.
    """

    sparsity: str = SPARSITY
    hessian: dict[str, dict[str, MatrixOrNull]] = Field(default={}, description="Unless the request has `diagonal`.")
    diagonal: dict[str, TensorOrNull] = Field(default={}, description="If the request has `diagonal`.")
    absent: dict[str, Absences | Reason] = ABSENT


class Problem(BaseModel):
    """The errors of a request (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    instance: str = Field(description="The path of the request.")
    errors: list[ProblemEntry]
