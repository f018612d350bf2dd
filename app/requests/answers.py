"""The models of the responses of every operation, for the OpenAPI document."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from app.errors import NotAcceptable, UnsupportedMediaType
from app.requests.models import ref

# As ``OneTensorIn``: a field that is one tensor.
OneTensorOut = Annotated[Any, WithJsonSchema({"anyOf": [ref("TypedTensor")]})]
TensorOrNull = Annotated[Any, WithJsonSchema({"anyOf": [ref("TypedTensor"), {"type": "null"}]})]
# Those of a derived op may be null, as the derivatives that they are.
Outputs = dict[str, TensorOrNull]
Reason = Literal["not_differentiable", "disconnected", "not_sent"]
Absences = dict[str, Reason]

ABSENT: Any = Field(default_factory=dict[str, Any], description="Only if a result is null: why.")
JSON = "application/json"
EVENTS, LINES = "text/event-stream", "application/x-ndjson"
SHORT_ACCEPT = 256
QUALITY = re.compile(r"q=(0(?:\.[0-9]*)?|1(?:\.0*)?)")

Headers = Mapping[bytes, bytes]


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
    uncertainty: dict[str, Any] = Field(
        default={},
        description="Only with `digits`: the absolute error of each number, estimated, as the answer has it.",
    )
    no_uncertainty: dict[str, Any] = Field(
        default={},
        description="Only with `digits`, and if an uncertainty is null: why, in its place. It is `whole_number`, "
        "`python_function` or `loop_ends_by_value`.",
    )


class ForwardAnswer(PointsAnswer):
    """The outputs."""

    outputs: Outputs
    absent: Absences = ABSENT


class Kept(OperationAnswer):
    """A linearization that the service keeps for a time."""

    id: str = Field(description="Of the paths /v1/linearizations/{id}, for the key that made it.")
    bytes: int = Field(description="The memory that it takes, of the room for all.")
    expires_s: int = Field(description="In how many seconds it ends; PATCH renews it.")


class LinearizeAnswer(OperationAnswer):
    """The outputs, and the linearization, if it is worth keeping."""

    outputs: Outputs
    absent: Absences = ABSENT
    linearization: Kept | None
    reason: str = Field(default="", description="Only if there is none: why.")


class GradientsAnswer(PointsAnswer):
    """The outputs, and one entry per order."""

    outputs: Outputs
    gradients: list[dict[str, TensorOrNull]]
    absent: list[Absences] = Field(default=[], description="Only if a gradient is null: why, one entry per order.")


class VjpAnswer(PointsAnswer):
    """The cotangents of the inputs; with ``batched``, along a leading axis."""

    outputs: Outputs = Field(default={}, description="Only if requested.")
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


def content_type(headers: Headers, supported: Sequence[str] = (JSON,), default: str = "") -> str:
    """Return the media type of the body, ``default`` if the client does not name it.

    Raises ``UnsupportedMediaType`` for a media type that is not ``supported``.
    """
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower().decode("latin-1") or default
    if kind not in supported:
        raise UnsupportedMediaType(f"expected Content-Type: {' or '.join(supported)}, got {kind or 'none'}")
    return kind


def accepted(headers: Headers, offered: tuple[str, ...] = (JSON,)) -> str:
    """Return the media type of the response: the client's preferred one, the first offered if it has no preference.

    Raises ``NotAcceptable`` if the client accepts none of those offered.
    """
    accept = headers.get(b"accept", b"")
    return (_known_choice if len(accept) <= SHORT_ACCEPT else _choice)(accept, offered)


def _choice(header: bytes, offered: tuple[str, ...]) -> str:
    accept = header.decode("latin-1").lower()
    if accept.strip() in ("", "*/*"):
        return offered[0]
    parts = list[tuple[str, float]]()
    for part in "".join(accept.split()).split(","):
        kind, *parameters = part.split(";")
        qualities = [float(match[1]) for each in parameters if (match := QUALITY.fullmatch(each))]
        parts.append((kind, qualities[0] if qualities else 1.0))
    preferences = {media_type: _preference(media_type, parts) for media_type in offered}
    best = max(offered, key=preferences.__getitem__)
    if not preferences[best][0]:
        raise NotAcceptable(f"expected Accept: {' or '.join(offered)}, got {accept}")
    return best


# There are few different headers, and a client sends the same one each time.
_known_choice = lru_cache(maxsize=256)(_choice)


def _preference(media_type: str, parts: Sequence[tuple[str, float]]) -> tuple[float, int, int]:
    """Return the client's preference for a type: its quality, then how specific and how early its range is."""
    for breadth, name in enumerate((media_type, f"{media_type.partition('/')[0]}/*", "*/*")):
        for position, (kind, quality) in enumerate(parts):
            if kind == name:
                return quality, -breadth, -position
    return 0.0, 0, 0
