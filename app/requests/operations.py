"""Every operation on an op, in one table: its models, and how a request at a point becomes work for the lane."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from app.autodiff import derivatives, matrices
from app.autodiff.binding import bind_directions
from app.autodiff.evaluation import Evaluation
from app.autodiff.point import Point
from app.execution.lane import Checkpoint
from app.requests import models
from app.tensors.safetensors import decode
from ops import Array

Fields: TypeAlias = Mapping[str, Any]
"""The fields of a request, its tensors not decoded yet."""
Tree: TypeAlias = Any
"""An answer before it is written: objects and lists of arrays and ``Absent``."""
Steps: TypeAlias = Callable[[Checkpoint], Any]
"""What is computed in steps, alone."""
Work: TypeAlias = Evaluation[Any] | Steps


@dataclass(frozen=True)
class Asked:
    """What is asked of an op at a point: the request without its tensors, and the names that it selects."""

    request: Any
    wrt: tuple[str, ...]
    of: tuple[str, ...]


@dataclass(frozen=True)
class Operation:
    """One operation: its models, how a request at a point becomes work for the lane, and what it finds an answer."""

    name: str
    summary: str
    request: type[models.Request]
    answer: type[models.Answer]
    prepare: Callable[[Asked, Point, Fields], Work]
    tree: Callable[[Asked, Any], dict[str, Tree]]
    is_long: bool = False

    def work(self, asked: Asked, point: Point, fields: Fields) -> Work:
        """Return the work; where only the op knows its outputs' shapes, even what must be checked first is work."""
        if None not in point.output_shapes.values():
            return self.prepare(asked, point, fields)

        def steps(checkpoint: Checkpoint) -> Any:
            work = self.prepare(asked, point, fields)
            return work.run() if isinstance(work, Evaluation) else work(checkpoint)

        return steps


def _forward(asked: Asked, point: Point, fields: Fields) -> Work:
    del asked, fields
    return derivatives.forward(point)


def _gradients(asked: Asked, point: Point, fields: Fields) -> Work:
    return derivatives.gradients(point, asked.wrt, _cotangents(point, fields), asked.request.order)


def _vjp(asked: Asked, point: Point, fields: Fields) -> Work:
    batched, outputs = asked.request.batched, asked.request.outputs
    return derivatives.vjp(point, asked.wrt, _cotangents(point, fields), batched=batched, outputs=outputs)


def _jvp(asked: Asked, point: Point, fields: Fields) -> Work:
    tangents = bind_directions(fields["tangents"], point.spec.inputs, decode, "tangents") or {}
    return derivatives.jvp(point, tangents, batched=asked.request.batched)


def _jacobian(asked: Asked, point: Point, fields: Fields) -> Work:
    del fields
    return lambda checkpoint: matrices.jacobian(point, asked.of, asked.wrt, checkpoint)


def _hvp(asked: Asked, point: Point, fields: Fields) -> Work:
    cotangents = _cotangents(point, fields)
    vectors = bind_directions(fields["vectors"], point.spec.inputs, decode, "vectors") or {}
    return derivatives.hvp(point, asked.wrt, cotangents, vectors, batched=asked.request.batched)


def _hessian(asked: Asked, point: Point, fields: Fields) -> Work:
    cotangents = _cotangents(point, fields)
    if asked.request.diagonal:
        return derivatives.hessian_diagonal(point, asked.wrt, cotangents)
    return lambda checkpoint: matrices.hessian(point, asked.wrt, cotangents, checkpoint)


def _cotangents(point: Point, fields: Fields) -> dict[str, Array] | None:
    return bind_directions(fields.get("cotangents"), point.spec.outputs, decode, "cotangents")


def _gradients_tree(asked: Asked, found: Any) -> dict[str, Tree]:
    outputs, gradients = found
    return {"outputs": outputs, "gradients": gradients} if outputs else {"gradients": gradients}


def _hessian_tree(asked: Asked, found: Any) -> dict[str, Tree]:
    return {"diagonal" if asked.request.diagonal else "hessian": found}


def _as(field: str) -> Callable[[Asked, Any], dict[str, Tree]]:
    return lambda asked, found: {field: found}


OPERATIONS: Mapping[str, Operation] = {
    operation.name: operation
    for operation in (
        Operation("forward", "Evaluate an op", models.ForwardRequest, models.ForwardAnswer, _forward, _as("outputs")),
        Operation(
            "gradients",
            "Gradients of order 1 to 4: each is the gradient of the sum of the previous one",
            models.GradientsRequest,
            models.GradientsAnswer,
            _gradients,
            _gradients_tree,
        ),
        Operation(
            "vjp", "Pull cotangents back to the inputs", models.VjpRequest, models.VjpAnswer, _vjp, _gradients_tree
        ),
        Operation(
            "jvp", "Push tangents forward to the outputs", models.JvpRequest, models.JvpAnswer, _jvp, _as("tangents")
        ),
        Operation(
            "jacobian",
            "Differentiate outputs with respect to inputs",
            models.JacobianRequest,
            models.JacobianAnswer,
            _jacobian,
            _as("jacobian"),
            is_long=True,
        ),
        Operation(
            "hvp",
            "Multiply the transposed Hessian by vectors",
            models.HvpRequest,
            models.HvpAnswer,
            _hvp,
            _as("products"),
        ),
        Operation(
            "hessian",
            "Differentiate the vjp",
            models.HessianRequest,
            models.HessianAnswer,
            _hessian,
            _hessian_tree,
            is_long=True,
        ),
    )
}
