"""Every operation on an op, in one table: its models, and how a request at a point becomes work for the lane."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from app import derivatives, matrices
from app.binding import Point, bind_directions, bind_names
from app.call import Call
from app.execution import Checkpoint
from app.routes import wire
from app.tensors.safetensors import decode

Tree: TypeAlias = Any
"""An answer before it is written: objects and lists of arrays and ``Absent``."""
Steps: TypeAlias = Callable[[Checkpoint], dict[str, Tree]]
"""What is computed in steps, alone."""
Work: TypeAlias = Call[dict[str, Tree]] | Steps


@dataclass(frozen=True)
class Operation:
    """One operation: its models, and how a request at a point becomes work for the lane."""

    name: str
    summary: str
    request: type[wire.Request]
    answer: type[wire.Answer]
    prepare: Callable[[Any, Point], Work]
    is_long: bool = False

    def work(self, request: Any, point: Point) -> Work:
        """Return the work; where only the op knows its outputs' shapes, even what must be checked first is work."""
        if all(point.output_shape(slot) is not None for slot in point.op.outputs):
            return self.prepare(request, point)

        def steps(checkpoint: Checkpoint) -> dict[str, Tree]:
            work = self.prepare(request, point)
            return work.run() if isinstance(work, Call) else work(checkpoint)

        return steps


def _forward(request: wire.ForwardRequest, point: Point) -> Call[dict[str, Tree]]:
    del request
    return derivatives.forward(point).then(lambda outputs: {"outputs": outputs})


def _gradients(request: wire.GradientsRequest, point: Point) -> Call[dict[str, Tree]]:
    wrt = bind_names(request.wrt, point.op.inputs, "wrt")
    cotangents = bind_directions(point, request.cotangents, point.op.outputs, decode, "cotangents")
    call = derivatives.gradients(point, wrt, cotangents, request.order)
    return call.then(lambda found: dict(zip(("outputs", "gradients"), found, strict=True)))


def _vjp(request: wire.VjpRequest, point: Point) -> Call[dict[str, Tree]]:
    wrt = bind_names(request.wrt, point.op.inputs, "wrt")
    cotangents = bind_directions(point, request.cotangents, point.op.outputs, decode, "cotangents")
    call = derivatives.vjp(point, wrt, cotangents, batched=request.batched, outputs=request.outputs)
    if request.outputs:
        return call.then(lambda found: dict(zip(("outputs", "gradients"), found, strict=True)))
    return call.then(lambda found: {"gradients": found[1]})


def _jvp(request: wire.JvpRequest, point: Point) -> Call[dict[str, Tree]]:
    tangents = bind_directions(point, request.tangents, point.op.inputs, decode, "tangents")
    return derivatives.jvp(point, tangents or {}, batched=request.batched).then(lambda found: {"tangents": found})


def _jacobian(request: wire.JacobianRequest, point: Point) -> Steps:
    wrt = bind_names(request.wrt, point.op.inputs, "wrt")
    of = bind_names(request.of, point.op.outputs, "of")
    return lambda checkpoint: {"jacobian": matrices.jacobian(point, of, wrt, checkpoint)}


def _hvp(request: wire.HvpRequest, point: Point) -> Call[dict[str, Tree]]:
    wrt = bind_names(request.wrt, point.op.inputs, "wrt")
    cotangents = bind_directions(point, request.cotangents, point.op.outputs, decode, "cotangents")
    vectors = bind_directions(point, request.vectors, point.op.inputs, decode, "vectors")
    call = derivatives.hvp(point, wrt, cotangents, vectors or {}, batched=request.batched)
    return call.then(lambda found: {"products": found})


def _hessian(request: wire.HessianRequest, point: Point) -> Steps:
    wrt = bind_names(request.wrt, point.op.inputs, "wrt")
    cotangents = bind_directions(point, request.cotangents, point.op.outputs, decode, "cotangents")
    if request.diagonal:
        return lambda checkpoint: {"diagonal": matrices.hessian_diagonal(point, wrt, cotangents)}
    return lambda checkpoint: {"hessian": matrices.hessian(point, wrt, cotangents, checkpoint)}


OPERATIONS: Mapping[str, Operation] = {
    operation.name: operation
    for operation in (
        Operation("forward", "The value of an op", wire.ForwardRequest, wire.ForwardAnswer, _forward),
        Operation(
            "gradients",
            "Gradients of order 1 to 4: each of the sum of the one before",
            wire.GradientsRequest,
            wire.GradientsAnswer,
            _gradients,
        ),
        Operation("vjp", "Pull cotangents back to the inputs", wire.VjpRequest, wire.VjpAnswer, _vjp),
        Operation("jvp", "Push tangents forward to the outputs", wire.JvpRequest, wire.JvpAnswer, _jvp),
        Operation(
            "jacobian",
            "Every output by every input",
            wire.JacobianRequest,
            wire.JacobianAnswer,
            _jacobian,
            is_long=True,
        ),
        Operation("hvp", "The Hessian's transpose times vectors", wire.HvpRequest, wire.HvpAnswer, _hvp),
        Operation(
            "hessian", "The derivative of the vjp", wire.HessianRequest, wire.HessianAnswer, _hessian, is_long=True
        ),
    )
}
