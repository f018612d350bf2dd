"""POST /v1/ops/{op}/{operation}: a route for each operation, and one handler for all."""

from dataclasses import dataclass
from functools import lru_cache, partial

from app.execution.calls import Call
from app.execution.engine import Engine
from app.http.request import Request
from app.http.route import RawRoute
from app.requests.answering import answer
from app.requests.negotiation import SHORT_ACCEPT, accepted, content_type
from app.requests.operations import OPERATIONS
from app.requests.plans import Operation, Plans
from app.routes.native.descriptions import X, binary, computation, op_name
from app.routes.native.formats import FORMATS, Format
from app.routes.protocol import per_op
from app.telemetry.counters import Counters
from app.tensors.strict_json import Body
from ops import Op

MEDIA_TYPES = tuple(FORMATS)


def operation_routes(engine: Engine, plans: Plans) -> list[RawRoute]:
    """Return the route of each operation."""
    return [_route(engine, plans, operation) for operation in OPERATIONS.values()]


def _route(engine: Engine, plans: Plans, operation: Operation) -> RawRoute:
    def handler(op: Op, counters: Counters) -> OperationHandler:
        return OperationHandler(engine, plans, op, operation, op.owner, counters)

    fields = [name for name in ("inputs", "tangents", "vectors") if name in operation.request.model_fields]
    find = per_op(engine, operation.name, handler)
    example = {name: {"x": X} for name in fields}
    return computation(
        f"/v1/ops/{{op}}/{operation.name}",
        find,
        operation.request,
        operation.answer,
        example,
        **binary(operation.answer, example),
        parameters={"op": op_name([*engine.registry.ops])},
        tags=["derivatives"],
        summary=operation.summary,
    )


@dataclass(frozen=True)
class OperationHandler:
    """The handler of one operation on one op."""

    engine: Engine
    plans: Plans
    op: Op
    operation: Operation
    owner: str
    counters: Counters

    async def __call__(self, request: Request) -> None:
        """Answer a request; raises a ``PullbackError`` if it is invalid or fails."""
        kind, accept = request.headers.get(b"content-type", b""), request.headers.get(b"accept", b"")
        formats_of = _known_formats if len(kind) + len(accept) <= SHORT_ACCEPT else _formats
        source, target = formats_of(kind, accept)
        body = await request.read(is_binary=source.is_binary)
        read, is_binary = partial(self._call, source, target), source.is_binary and target.is_binary
        await answer(self.engine, request, read, body, self.owner, is_binary=is_binary)

    def _call(self, source: Format, target: Format, body: Body) -> Call:
        fields = source.parse(body)
        plan = self.plans.plan(self.operation, self.op, fields)
        return plan.call(fields, partial(target.write, plan), self.counters, fields.sources, decode=source.decode)


def _formats(kind: bytes, accept: bytes) -> tuple[Format, Format]:
    """Return the formats of the body and of the response for these headers."""
    headers = {b"content-type": kind, b"accept": accept}
    return FORMATS[content_type(headers, MEDIA_TYPES)], FORMATS[accepted(headers, MEDIA_TYPES)]


# A client sends the same headers each time.
_known_formats = lru_cache(maxsize=256)(_formats)
