"""One table of the operations on an op: their models, and the work for a query at a point."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from app.autodiff import derivatives, matrices
from app.autodiff.point import Point
from app.execution.calls import Work
from app.requests import models
from ops import Array

Fields: TypeAlias = Mapping[str, Any]
"""The fields of a request, its tensors not decoded."""
Tree: TypeAlias = Any
"""A response before it is written: objects and lists of arrays and ``Absent``."""


@dataclass(frozen=True)
class Query:
    """A request to an op without its tensors: its model, and the names that it selects."""

    request: Any
    wrt: tuple[str, ...]
    of: tuple[str, ...]


Directions: TypeAlias = Mapping[str, dict[str, Array] | None]
"""The cotangents, tangents or vectors of a request, by its field; ``None`` for an omitted field."""


@dataclass(frozen=True)
class Operation:
    """One operation: its models, the work for a query at a point, and the tree of the result.

    ``directions`` maps the fields of its directions to the side of the op that they belong to.
    """

    name: str
    summary: str
    request: type[models.OperationRequest]
    answer: type[models.OperationAnswer]
    directions: Mapping[str, Literal["inputs", "outputs"]]
    work: Callable[[Query, Point, Directions], Work]
    tree: Callable[[Query, Any], dict[str, Tree]]
    is_long: bool = False


def _forward(query: Query, point: Point, directions: Directions) -> Work:
    del query, directions
    return derivatives.forward(point)


def _gradients(query: Query, point: Point, directions: Directions) -> Work:
    return derivatives.gradients(point, query.wrt, directions["cotangents"], query.request.order)


def _vjp(query: Query, point: Point, directions: Directions) -> Work:
    batched, outputs = query.request.batched, query.request.outputs
    return derivatives.vjp(point, query.wrt, directions["cotangents"], batched=batched, outputs=outputs)


def _jvp(query: Query, point: Point, directions: Directions) -> Work:
    return derivatives.jvp(point, directions["tangents"] or {}, batched=query.request.batched)


def _jacobian(query: Query, point: Point, directions: Directions) -> Work:
    del directions
    return lambda checkpoint: matrices.jacobian(point, query.of, query.wrt, checkpoint)


def _hvp(query: Query, point: Point, directions: Directions) -> Work:
    cotangents, vectors = directions["cotangents"], directions["vectors"] or {}
    return derivatives.hvp(point, query.wrt, cotangents, vectors, batched=query.request.batched)


def _hessian(query: Query, point: Point, directions: Directions) -> Work:
    cotangents = directions["cotangents"]
    if query.request.diagonal:
        return derivatives.hessian_diagonal(point, query.wrt, cotangents)
    return lambda checkpoint: matrices.hessian(point, query.wrt, cotangents, checkpoint)


def _gradients_tree(query: Query, result: Any) -> dict[str, Tree]:
    outputs, gradients = result
    return {"outputs": outputs, "gradients": gradients} if outputs else {"gradients": gradients}


def _hessian_tree(query: Query, result: Any) -> dict[str, Tree]:
    return {"diagonal" if query.request.diagonal else "hessian": result}


def _tree_of(field: str) -> Callable[[Query, Any], dict[str, Tree]]:
    return lambda query, result: {field: result}


_COTANGENTS: Mapping[str, Literal["inputs", "outputs"]] = {"cotangents": "outputs"}

OPERATIONS: Mapping[str, Operation] = {
    operation.name: operation
    for operation in (
        Operation(
            "forward",
            "Evaluate an op",
            models.ForwardRequest,
            models.ForwardAnswer,
            {},
            _forward,
            _tree_of("outputs"),
        ),
        Operation(
            "gradients",
            "Gradients of order 1 to 4: each is the gradient of the sum of the previous one",
            models.GradientsRequest,
            models.GradientsAnswer,
            _COTANGENTS,
            _gradients,
            _gradients_tree,
        ),
        Operation(
            "vjp",
            "Pull cotangents back to the inputs",
            models.VjpRequest,
            models.VjpAnswer,
            _COTANGENTS,
            _vjp,
            _gradients_tree,
        ),
        Operation(
            "jvp",
            "Push tangents forward to the outputs",
            models.JvpRequest,
            models.JvpAnswer,
            {"tangents": "inputs"},
            _jvp,
            _tree_of("tangents"),
        ),
        Operation(
            "jacobian",
            "Differentiate outputs with respect to inputs",
            models.JacobianRequest,
            models.JacobianAnswer,
            {},
            _jacobian,
            _tree_of("jacobian"),
            is_long=True,
        ),
        Operation(
            "hvp",
            "Multiply the transposed Hessian by vectors",
            models.HvpRequest,
            models.HvpAnswer,
            {**_COTANGENTS, "vectors": "inputs"},
            _hvp,
            _tree_of("products"),
        ),
        Operation(
            "hessian",
            "Differentiate the vjp",
            models.HessianRequest,
            models.HessianAnswer,
            _COTANGENTS,
            _hessian,
            _hessian_tree,
            is_long=True,
        ),
    )
}
