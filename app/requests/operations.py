"""One table of the operations on an op: their models, the work for a plan at a point, and the tree of the result."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from app.autodiff import derivatives, matrices
from app.autodiff.point import Point
from app.execution.calls import Work
from app.requests import answers, models
from app.requests.digits import Directions, Tree
from app.requests.plans import Operation, Plan


def _forward(plan: Plan, point: Point, directions: Directions) -> Work:
    del plan, directions
    return derivatives.forward(point)


def _gradients(plan: Plan, point: Point, directions: Directions) -> Work:
    return derivatives.gradients(point, plan.wrt, directions["cotangents"], plan.request.order)


def _vjp(plan: Plan, point: Point, directions: Directions) -> Work:
    batched, outputs = plan.request.batched, plan.request.outputs
    return derivatives.vjp(point, plan.wrt, directions["cotangents"], batched=batched, outputs=outputs)


def _jvp(plan: Plan, point: Point, directions: Directions) -> Work:
    return derivatives.jvp(point, directions["tangents"] or {}, batched=plan.request.batched)


def _jacobian(plan: Plan, point: Point, directions: Directions) -> Work:
    del directions
    small = matrices.jacobian_of_rows(point, plan.of, plan.wrt)
    return small or (lambda checkpoint: matrices.jacobian(point, plan.of, plan.wrt, checkpoint))


def _hvp(plan: Plan, point: Point, directions: Directions) -> Work:
    cotangents, vectors = directions["cotangents"], directions["vectors"] or {}
    return derivatives.hvp(point, plan.wrt, cotangents, vectors, batched=plan.request.batched)


def _hessian(plan: Plan, point: Point, directions: Directions) -> Work:
    cotangents = directions["cotangents"]
    if plan.request.diagonal:
        return derivatives.hessian_diagonal(point, plan.wrt, cotangents)
    small = matrices.hessian_of_rows(point, plan.wrt, cotangents)
    return small or (lambda checkpoint: matrices.hessian(point, plan.wrt, cotangents, checkpoint))


def _gradients_tree(plan: Plan, result: Any) -> dict[str, Tree]:
    outputs, gradients = result
    return {"outputs": outputs, "gradients": gradients} if outputs else {"gradients": gradients}


def _hessian_tree(plan: Plan, result: Any) -> dict[str, Tree]:
    return {"diagonal" if plan.request.diagonal else "hessian": result}


def _tree_of(field: str) -> Callable[[Plan, Any], dict[str, Tree]]:
    return lambda plan, result: {field: result}


_COTANGENTS: Mapping[str, Literal["inputs", "outputs"]] = {"cotangents": "outputs"}

OPERATIONS: Mapping[str, Operation] = {
    operation.name: operation
    for operation in (
        Operation(
            "forward", "Evaluate an op", models.ForwardRequest, answers.ForwardAnswer, {}, _forward, _tree_of("outputs")
        ),
        Operation(
            "gradients",
            "Gradients of order 1 to 4: each is the gradient of the sum of the previous one",
            models.GradientsRequest,
            answers.GradientsAnswer,
            _COTANGENTS,
            _gradients,
            _gradients_tree,
        ),
        Operation(
            "vjp",
            "Pull cotangents back to the inputs",
            models.VjpRequest,
            answers.VjpAnswer,
            _COTANGENTS,
            _vjp,
            _gradients_tree,
        ),
        Operation(
            "jvp",
            "Push tangents forward to the outputs",
            models.JvpRequest,
            answers.JvpAnswer,
            {"tangents": "inputs"},
            _jvp,
            _tree_of("tangents"),
        ),
        Operation(
            "jacobian",
            "Differentiate outputs with respect to inputs",
            models.JacobianRequest,
            answers.JacobianAnswer,
            {},
            _jacobian,
            _tree_of("jacobian"),
            is_long=True,
        ),
        Operation(
            "hvp",
            "Multiply the transposed Hessian by vectors",
            models.HvpRequest,
            answers.HvpAnswer,
            {**_COTANGENTS, "vectors": "inputs"},
            _hvp,
            _tree_of("products"),
        ),
        Operation(
            "hessian",
            "Differentiate the vjp",
            models.HessianRequest,
            answers.HessianAnswer,
            _COTANGENTS,
            _hessian,
            _hessian_tree,
            is_long=True,
        ),
    )
}
