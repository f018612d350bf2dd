"""Requests at one point of an op, which is evaluated there for a check, and the numbers of their answers."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, cast

from pydantic import BaseModel, ConfigDict, Field

from app.autodiff.binding import bind, bind_directions, bind_dtype
from app.autodiff.derived import variant_of
from app.autodiff.point import Point
from app.execution.engine import Engine
from app.requests.answering import Reply
from app.requests.answers import JSON
from app.requests.models import MAX_NAMES, Attributes, Cotangents, Device, Dtype, Parameters, Tensors
from app.tensors.json import decode, dtypes_of
from app.tensors.strict_json import dumps
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


def spell_nonfinite(tree: Any) -> Any:
    """Return a document with NaN and the infinities as strings."""
    if isinstance(tree, float) and not math.isfinite(tree):
        return "NaN" if math.isnan(tree) else "Infinity" if tree > 0 else "-Infinity"
    if isinstance(tree, Mapping):
        return {key: spell_nonfinite(value) for key, value in cast(Mapping[str, Any], tree).items()}
    if isinstance(tree, list | tuple):
        return [spell_nonfinite(value) for value in cast(list[Any], tree)]
    return tree


def spelled_reply(document: Mapping[str, Any]) -> Reply:
    """Return a document as a JSON response, with NaN and the infinities as strings."""
    return Reply(JSON, [dumps(spell_nonfinite(document))])
