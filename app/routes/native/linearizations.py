"""POST /v1/ops/{op}/linearize, and /v1/linearizations/{id}: forward passes that are kept, and products at their points.

A request with an id is answered only for the key that made the id.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from app.autodiff import derivatives
from app.autodiff.binding import bind_directions, bind_inputs
from app.autodiff.linearization import NO_ROOM, Linearization, Product, linearize
from app.autodiff.point import Arrays
from app.execution.calls import Call
from app.execution.engine import Engine
from app.http.request import Request
from app.http.route import RawRoute, always
from app.kept.linearizations import OVERHEAD, Linearizations
from app.kept.memory import Held
from app.requests import answers, models
from app.requests.answering import Reply, send_reply
from app.requests.answers import accepted, content_type
from app.requests.brief import Reading
from app.requests.complex_numbers import numbers_in
from app.requests.fields import read, validated
from app.requests.plans import Operation, Plans
from app.routes.native.derivatives import FORMATS, MEDIA_TYPES, Format, FormatsHandler, operation_route
from app.routes.native.descriptions import X, binary, computation
from app.routes.protocol import document_reply
from app.runtime.cancellation import Checkpoint
from app.telemetry.accounts import Owner
from app.telemetry.counters import Counters
from app.tensors.json import decode
from app.tensors.strict_json import Body
from ops import Op

ONE = "/v1/linearizations/{id}"
RECOMPUTED = (b"pullback-recomputed", b"forward")
# Balancers learn from it which server has the ids that begin with this name.
REPLICA = b"pullback-replica"

LINEARIZE = Operation(
    "linearize",
    "Keep the forward pass at a point",
    models.LinearizeRequest,
    answers.LinearizeAnswer,
    {},
    lambda plan, point, directions: derivatives.forward(point),
    lambda plan, result: {"outputs": result},
)


class Renewal(BaseModel):
    """How long a linearization is kept from now on."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    expires_s: float = Field(gt=0, description="In seconds.")


class KeptAnswer(answers.OperationAnswer):
    """A linearization."""

    linearization: answers.Kept


Given: TypeAlias = Mapping[str, Arrays | None]
"""The directions of a request, by field; ``None`` for an omitted field."""


class ProductKind(NamedTuple):
    """A kind of product: its models, the field of its result, and the function that computes it.

    ``directions`` maps the fields of its directions to the side of the op that they belong to.
    """

    name: str
    summary: str
    request: type[models.ProductRequest]
    answer: type[answers.OperationAnswer]
    field: str
    directions: Mapping[str, str]
    compute: Callable[[Linearization, Given, bool, Checkpoint], Product]


def _vjp(at: Linearization, given: Given, batched: bool, checkpoint: Checkpoint) -> Product:
    return at.vjp(given["cotangents"], batched=batched, checkpoint=checkpoint)


def _jvp(at: Linearization, given: Given, batched: bool, checkpoint: Checkpoint) -> Product:
    return at.jvp(given["tangents"] or {}, batched=batched, checkpoint=checkpoint)


def _hvp(at: Linearization, given: Given, batched: bool, checkpoint: Checkpoint) -> Product:
    return at.hvp(given["cotangents"], given["vectors"] or {}, batched=batched, checkpoint=checkpoint)


PRODUCTS = (
    ProductKind(
        "vjp",
        "Pull cotangents back to a point that was linearized",
        *(models.VjpThereRequest, answers.VjpAnswer, "gradients", {"cotangents": "outputs"}, _vjp),
    ),
    ProductKind(
        "jvp",
        "Push tangents forward from a point that was linearized",
        *(models.JvpThereRequest, answers.JvpAnswer, "tangents", {"tangents": "inputs"}, _jvp),
    ),
    ProductKind(
        "hvp",
        "Multiply the transposed Hessian at a point that was linearized by vectors",
        *(models.HvpThereRequest, answers.HvpAnswer, "products", {"cotangents": "outputs", "vectors": "inputs"}, _hvp),
    ),
)


def linearization_routes(engine: Engine, plans: Plans) -> list[RawRoute]:
    """Return the routes of linearizations."""
    counters = engine.counters("", "linearizations")

    def handler(op: Op, counters: Counters) -> "LinearizeHandler":
        return LinearizeHandler(engine, counters, op.owner, plans, op)

    # The memory of this process has the result.
    first = operation_route(engine, LINEARIZE, handler, may_be_job=False)
    shared: dict[str, Any] = {"tags": ["derivatives"], "parameters": {"id": str}, "may_be_job": False}
    products = [
        computation(
            f"{ONE}/{kind.name}",
            always(ProductHandler(engine, counters, "", kind), counters),
            kind.request,
            kind.answer,
            given := {field: {"x" if side == "inputs" else "y": X} for field, side in kind.directions.items()},
            **shared | binary(kind.answer, given),
            summary=kind.summary,
        )
        for kind in PRODUCTS
    ]
    for route in products:
        route.operation_id = route.unique_id = f"linearization_{route.operation_id}"
    found = (
        ("GET", partial(_get, engine), "Get the outputs of a linearization", answers.LinearizeAnswer, None),
        ("PATCH", partial(_renew, engine.linearizations), "Renew a linearization", KeptAnswer, Renewal),
        ("DELETE", partial(_drop, engine.linearizations), "Free a linearization", None, None),
    )
    routes = [
        RawRoute(
            ONE,
            always(answer, counters),
            methods=[method],
            summary=summary,
            operation_id=f"{method.lower()}_linearization",
            response_model=model,
            body=body,
            status_code=204 if method == "DELETE" else 200,
            **shared,
        )
        for method, answer, summary, model, body in found
    ]
    methods = ("GET", "HEAD", "PATCH", "DELETE")
    for route in routes:
        route.others = tuple([method for method in methods if method not in (route.methods or ())])
    return [first, *products, *routes]


@dataclass(frozen=True)
class LinearizeHandler(FormatsHandler):
    """The handler that linearizes one op."""

    plans: Plans
    op: Op

    def call(self, source: Format, target: Format, request: Request, body: Body) -> Call:
        """Return the call of a request."""
        with Reading(self.op, "linearize", len(body)):
            fields = source.read(body, request.parse)
            if fields.get("mode") is None and "graph" in self.op.modes:
                fields["mode"] = "graph"
            plan = self.plans.plan(LINEARIZE, self.op, fields)
            point = bind_inputs(plan.spec, fields["inputs"], decode)
        store = self.engine.linearizations

        def work(checkpoint: Checkpoint) -> tuple[Held[Linearization], Linearization, str]:
            del checkpoint
            held = store.begin(request.key)
            try:
                own, why_not = linearize(point, plan.wrt, partial(store.reserve, held))
                size = OVERHEAD + _bytes(point.inputs) + _bytes(own.outputs)
                if not why_not and not store.reserve(held, size):
                    why_not = NO_ROOM
            except BaseException:
                store.release(held)
                raise
            if why_not:
                store.release(held)
            else:
                store.keep(held, own)
            return held, own, why_not

        def write(result: tuple[Held[Linearization], Linearization, str]) -> Reply:
            held, own, why_not = result
            others = {"linearization": None, "reason": why_not} if why_not else {"linearization": _about(held)}
            reply = target.write({"outputs": _outputs(own)}, plan.request.encoding, others)
            return reply if why_not else reply._replace(headers=((REPLICA, store.process.encode()),))

        return Call(self.op.owner, plan.spec, work, True, write, self.counters)


@dataclass(frozen=True)
class ProductHandler(FormatsHandler):
    """The handler of one kind of product."""

    kind: ProductKind

    def call(self, source: Format, target: Format, request: Request, body: Body) -> Call:
        """Return the call of a request."""
        _, own = self.engine.linearizations.get(request.scope["path_params"]["id"], request.key)
        kind, spec = self.kind, own.point.spec
        with Reading(own.point.op, f"linearization {kind.name}", len(body)):
            fields = source.read(body, request.parse)
            wanted = validated(fields, kind.request)
            given: Given = {
                name: bind_directions(values, spec.inputs if side == "inputs" else spec.outputs, decode, name)
                if (values := fields.get(name)) is not None
                else None
                for name, side in kind.directions.items()
            }

        def work(checkpoint: Checkpoint) -> Product:
            return kind.compute(own, given, wanted.batched, checkpoint)

        def write(product: Product) -> Reply:
            result = numbers_in(spec.outputs if kind.name == "jvp" else spec.inputs, product.result)
            reply = target.write({kind.field: result}, wanted.encoding, {})
            return reply._replace(headers=(RECOMPUTED,)) if product.is_recomputed else reply

        return Call(own.point.op.owner, spec, work, True, write, self.counters)


async def _get(engine: Engine, request: Request) -> None:
    """Send the outputs of a linearization, and how long it is kept."""
    target = FORMATS[accepted(request.headers, MEDIA_TYPES)]
    held, own = engine.linearizations.get(request.scope["path_params"]["id"], request.key)
    others = {"linearization": _about(held)}
    work = partial(target.write, {"outputs": _outputs(own)}, "nested", others)
    await send_reply(await engine.describe(work, Owner(own.point.op.owner, request.key), request.deadline.at), request)


async def _renew(store: Linearizations, request: Request) -> None:
    content_type(request.headers)
    accepted(request.headers)
    renewal = read(await request.read(), Renewal)
    held = store.renew(request.scope["path_params"]["id"], request.key, renewal.expires_s)
    await send_reply(document_reply({"linearization": _about(held)}), request)


async def _drop(store: Linearizations, request: Request) -> None:
    store.drop(request.scope["path_params"]["id"], request.key)
    await request.respond(204, [], b"")


def _outputs(own: Linearization) -> Mapping[str, Any]:
    return numbers_in(own.point.spec.outputs, own.outputs)


def _about(held: Held[Linearization]) -> dict[str, Any]:
    return {"id": held.id, "bytes": held.size, "expires_s": held.expires_s}


def _bytes(arrays: Mapping[str, Any]) -> int:
    return sum(x.nbytes for x in arrays.values() if isinstance(x, np.ndarray))
