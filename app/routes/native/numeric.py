"""POST /v1/ops/{op}/numeric: the numeric derivative of an op, with its error bar.

One request evaluates an op at dozens of points for each number of its inputs. So it takes a place of the checks, and
the numbers that it evaluates are limited like those of a check.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from app.autodiff.binding import bind_directions, bind_wrt
from app.execution.calls import Call
from app.execution.engine import Engine
from app.gradcheck.numeric_derivative import Wanted, numeric
from app.http.request import Request
from app.requests.answering import answer
from app.requests.answers import JSON, OperationAnswer, accepted, content_type
from app.requests.brief import Reading
from app.requests.fields import read
from app.requests.models import RANKS, Dtype, Tensors, Wrt, nested
from app.routes.native.points import PointRequest, point_of, spelled_reply
from app.runtime.cancellation import Checkpoint
from app.telemetry.counters import Counters
from app.tensors import json
from app.tensors.fast_json import parse
from app.tensors.strict_json import Body
from ops import Op

Numbers = Annotated[Any, WithJsonSchema({"anyOf": [nested("Number", rank) for rank in RANKS]})]
STATUSES = "ok, kink, jump, not finite, no digits, constant nearby, underflow or estimates differ"


class NumericRequest(PointRequest):
    """The point, and what to differentiate there."""

    order: Literal[1, 2] = Field(default=1, description="1: of forward; 2: of the op's own vjp.")
    wrt: Wrt = None
    tangents: Tensors | None = Field(
        default=None,
        description="The direction of the only derivative, zeros for the inputs that it omits; omitted: one derivative "
        "for each number of the inputs.",
    )
    claim: bool = Field(
        default=False, description="Differentiate what the gradient claims to be the derivative of, not the op."
    )
    dtype: Dtype | None = Field(
        default=None, description="The dtype whose rounding the error bars cover; omitted: the op's first."
    )


class NumericDerivatives(BaseModel):
    """Derivatives, each with its error bar and status, in one shape."""

    derivative: Numbers = Field(description="NaN where there is none: kink, jump, not finite.")
    error_bar: Numbers = Field(description="The largest difference of a right derivative from it.")
    status: Annotated[Any, WithJsonSchema({"type": ["string", "array"], "items": {}})] = Field(
        description=f"{STATUSES[0].upper()}{STATUSES[1:]}, for each derivative."
    )


_DERIVATIVES: dict[str, Any] = {"derivative": [2.0, 4.0], "error_bar": [3.9e-6, 8.7e-6], "status": ["ok", "ok"]}
_ABOUT: dict[str, Any] = {"op": "square", "order": 1, "of": "forward", "dtype": "float32", "computed_in": "float64"}
_EXAMPLE: dict[str, Any] = {"examples": [{**_ABOUT, "derivatives": {"x": _DERIVATIVES}}]}


class NumericAnswer(OperationAnswer):
    """The numeric derivatives."""

    model_config = ConfigDict(json_schema_extra=_EXAMPLE)

    op: str
    order: Literal[1, 2]
    of: Literal["forward", "vjp", "surrogate", "formula"] = Field(
        description="What was differentiated; a formula is itself the derivative."
    )
    dtype: str = Field(description="The dtype whose rounding the error bars cover.")
    computed_in: str = Field(description="The dtype that the op computed in.")
    derivatives: dict[str, NumericDerivatives | None] = Field(
        default={}, description="By input, in its shape, null for one that is not differentiable; without tangents."
    )
    along: NumericDerivatives | None = Field(default=None, description="The one along the tangents, if there are any.")


@dataclass(frozen=True)
class NumericHandler:
    """The handler that differentiates one op numerically.

    Like the handler of ``verify``, it runs in the service: the op could crash it as well in a request for its values.
    """

    engine: Engine
    op: Op
    counters: Counters

    async def __call__(self, request: Request) -> None:
        """Send the derivatives; raises a ``PullbackError`` if the request is invalid or fails."""
        content_type(request.headers)
        accepted(request.headers, (JSON,))
        body = await request.read()
        async with self.engine.checks.place():
            await answer(self.engine, request, self._call, body, self.op.owner)

    def _call(self, body: Body) -> Call:
        with Reading(self.op, "numeric", len(body)):
            request = read(body, NumericRequest, parse)
            (point, cotangents), tangents = point_of(self.engine, self.op, request), None
            if request.tangents is not None:
                tangents = bind_directions(request.tangents, point.spec.inputs, json.decode, "tangents")
            wrt = bind_wrt(point.op, request.wrt)
        wanted = Wanted(request.order, wrt, cotangents, tangents, request.claim)

        def work(checkpoint: Checkpoint) -> dict[str, Any]:
            return numeric(point, wanted, checkpoint)

        return Call(self.op.owner, None, work, True, spelled_reply, self.counters)
