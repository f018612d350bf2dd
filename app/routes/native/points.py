"""Requests at one point of an op, which is evaluated there for a check: the fields of ``verify`` and ``numeric``."""

from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from app.autodiff.binding import bind, bind_directions, bind_dtype
from app.autodiff.derived import variant_of
from app.autodiff.point import Point
from app.execution.engine import Engine
from app.requests.models import MAX_NAMES, Attributes, Cotangents, Device, Dtype, Parameters, Tensors
from app.tensors.json import decode, dtypes_of
from ops import Array, Mode, Op


class PointRequest(BaseModel):
    """A point, and cotangents."""

    WHY_ONE_POINT: ClassVar[str] = (
        "numeric derivatives have the steps and the error bars that the noise at one point asks for"
    )
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    inputs: Tensors = Field(description="The op's inputs, by name.")
    attrs: Annotated[Attributes, Field(max_length=MAX_NAMES)] = Field(
        default={}, description="The op's attributes; omitted ones have their defaults."
    )
    dtype: Dtype | None = Field(default=None, description="The dtype of the op's type variable; omitted: its first.")
    mode: Mode | None = Field(default=None, description="The mode to run; omitted: the catalogue's default_mode.")
    device: Device | None = Field(default=None, description="cpu or gpu:N; omitted: the server's choice.")
    cotangents: Cotangents = None
    parameters: Parameters = None


def point_of(engine: Engine, op: Op, request: PointRequest) -> tuple[Point, dict[str, Array] | None]:
    """Return the point of a request, and its cotangents, ``None`` if it has none; raises ``Unprocessable``."""
    op = variant_of(op, dtypes_of(request.inputs))
    mode = request.mode or engine.default_mode(op, request.dtype, request.device)
    run = {"device": engine.device(request.device), "max_elements": engine.max_elements}
    parameters = engine.parameters(op, request.parameters)
    dtype = bind_dtype(op, request.dtype)
    point = bind(op, request.inputs, request.attrs, dtype, decode, mode=mode, parameters=parameters, **run)
    if request.cotangents is None:
        return point, None
    return point, bind_directions(request.cotangents, point.spec.outputs, decode, "cotangents")
