"""Values and derivatives of an op at a point, from NumPy to NumPy: each as a ``Evaluation``, to be run.

A derivative that does not exist is an ``Absent``, never a zero made up; a zero that TensorFlow returns stays one.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import TypeAlias

import numpy as np

from app.autodiff.evaluation import Evaluation, Found, present
from app.autodiff.point import Point, blame_op
from app.errors import Entry, OpFailed, wrong
from app.tensors.casting import Loss, bools
from ops import BOOL, Array, OpFault


class Absent(StrEnum):
    """Why there is no derivative."""

    NOT_DIFFERENTIABLE = "not_differentiable"
    DISCONNECTED = "disconnected"


Derivative: TypeAlias = Array | Absent
Named: TypeAlias = dict[str, Derivative]


def forward(point: Point) -> Evaluation[dict[str, Array]]:
    """Return the outputs."""
    return Evaluation(point, "forward", lambda found: _outputs(point, found))


def gradients(
    point: Point, wrt: Sequence[str], cotangents: Mapping[str, Array] | None, order: int
) -> Evaluation[tuple[dict[str, Array], list[Named]]]:
    """Return the outputs and, an order at a time, the gradient of the sum of all gradients of the order before."""
    _check_cotangents(point, cotangents)
    live = live_inputs(point, wrt)

    def finish(found: Found) -> tuple[dict[str, Array], list[Named]]:
        levels = [{name: found.get((k, name)) for name in live} for k in range(order)]
        return _outputs(point, found), [_absent_filled(point, wrt, level) for level in levels]

    return Evaluation(point, "gradients", finish, wrt=live, cotangents=cotangents, order=order, outputs=True)


def vjp(
    point: Point, wrt: Sequence[str], cotangents: Mapping[str, Array] | None, *, batched: bool, outputs: bool
) -> Evaluation[tuple[dict[str, Array], Named]]:
    """Return the outputs (empty unless asked for) and the cotangents of the inputs ``wrt``.

    ``batched``: cotangents and answers have a leading axis of directions.
    """
    _check_cotangents(point, cotangents, batched=batched)
    live = live_inputs(point, wrt)
    if batched:
        point.admit(_directions(cotangents) * sum(point.inputs[name].size for name in live), "gradients")

    def finish(found: Found) -> tuple[dict[str, Array], Named]:
        values = _outputs(point, found) if outputs else {}
        return values, _absent_filled(point, wrt, {name: found["gradients", name] for name in live})

    return Evaluation(point, "vjp", finish, wrt=live, cotangents=cotangents, batched=batched, outputs=outputs)


def jvp(point: Point, tangents: Mapping[str, Array], *, batched: bool) -> Evaluation[Named]:
    """Return the tangents of the outputs, as the vjp of the vjp with respect to its cotangent.

    Raises ``Unprocessable`` where the op claims a gradient that is not linear in the cotangent.
    """
    with blame_op(point.op, "claim"):
        linear = point.op.claim(point.spec.attrs).linear
    if not linear:
        message = f"the gradient of {point.op.name} is not linear in the cotangent, so it has no jvp"
        raise wrong(("attrs",), message, expected="attributes that make it linear", got="a non-linear gradient")
    _check_shapes(tangents, _input_shapes(point), "tangents", batched=batched)
    if batched:
        point.admit(
            _directions(tangents) * sum(math.prod(shape) for shape in output_shapes(point).values()), "tangents"
        )
    live = point.spec.outputs.live

    def finish(found: Found) -> Named:
        return {
            slot.name: _or_disconnected(found["tangents", slot.name])
            if slot.name in live
            else Absent.NOT_DIFFERENTIABLE
            for slot in point.op.outputs
        }

    return Evaluation(point, "jvp", finish, along=tangents, batched=batched)


def hvp(
    point: Point,
    wrt: Sequence[str],
    cotangents: Mapping[str, Array] | None,
    vectors: Mapping[str, Array],
    *,
    batched: bool,
) -> Evaluation[Named]:
    """Return Hᵀv: for each input i the sum over j of the derivative of ⟨g_j, v_j⟩, g the vjp at ``cotangents``."""
    _check_cotangents(point, cotangents)
    _check_shapes(vectors, _input_shapes(point), "vectors", batched=batched)
    live = live_inputs(point, wrt)
    if batched:
        point.admit(_directions(vectors) * sum(point.inputs[name].size for name in live), "products")

    def finish(found: Found) -> Named:
        return _absent_filled(point, wrt, {name: found["products", name] for name in live})

    return Evaluation(point, "hvp", finish, wrt=live, cotangents=cotangents, along=vectors, batched=batched)


def vjp_jvp(
    point: Point, wrt: Sequence[str], cotangents: Mapping[str, Array] | None, tangents: Mapping[str, Array]
) -> Evaluation[Named]:
    """Return Hv: for each input a of ``wrt`` the tangent of g_a along ``tangents``, g the vjp at ``cotangents``.

    That is Σ_b (∂g_a/∂x_b) v_b, where ``hvp`` sums over the rows: they differ where a second order is not symmetric.
    """
    _check_cotangents(point, cotangents)
    _check_shapes(tangents, _input_shapes(point), "tangents", batched=False)
    live = live_inputs(point, wrt)

    def finish(found: Found) -> Named:
        return _absent_filled(point, wrt, {name: found["products", name] for name in live})

    return Evaluation(point, "vjp_jvp", finish, wrt=live, cotangents=cotangents, along=tangents)


def hessian_diagonal(point: Point, wrt: Sequence[str], cotangents: Mapping[str, Array] | None) -> Evaluation[Named]:
    """Return ∂g_a/∂x_a element by element, of the shape of each input a, g the vjp at ``cotangents``.

    Raises ``Unprocessable`` unless the op is elementwise.
    """
    if point.op.batching != "elementwise":
        message = f"{point.op.name} is not elementwise, so its Hessian is not a diagonal"
        raise wrong(("diagonal",), message, expected="false", got="true")
    _check_cotangents(point, cotangents)
    live = live_inputs(point, wrt)

    def finish(found: Found) -> Named:
        return _absent_filled(point, wrt, {name: found["products", name] for name in live})

    return Evaluation(point, "diagonal", finish, wrt=live, cotangents=cotangents)


def _check_cotangents(point: Point, cotangents: Mapping[str, Array] | None, *, batched: bool = False) -> None:
    if cotangents is not None:
        _check_shapes(cotangents, output_shapes(point, cotangents), "cotangents", batched=batched)
    elif batched:
        expected = "cotangents with a leading axis of directions"
        raise wrong(("cotangents",), "a batched vjp needs cotangents", expected=expected, got="none")


def _check_shapes(
    directions: Mapping[str, Array], wanted: Mapping[str, tuple[int, ...]], field: str, *, batched: bool
) -> None:
    for name, direction in directions.items():
        _match((field, name), direction.shape, wanted[name], batched=batched)
    if batched and len(set(map(len, directions.values()))) > 1:
        lengths = {name: len(direction) for name, direction in directions.items()}
        raise wrong((field,), "the number of directions differs", expected="the same number", got=str(lengths))


def _directions(named: Mapping[str, Array] | None) -> int:
    return len(next(iter(named.values()))) if named else 0


def _match(loc: tuple[str, str], shape: tuple[int, ...], wanted: tuple[int, ...], *, batched: bool) -> None:
    if batched and (not shape or shape[1:] != wanted):
        expected = f"[directions, {', '.join(map(str, wanted))}]" if wanted else "[directions]"
        raise wrong(loc, "shape mismatch", expected=expected, got=str(list(shape)))
    if not batched and shape != wanted:
        raise wrong(loc, "shape mismatch", expected=str(list(wanted)), got=str(list(shape)))


def _input_shapes(point: Point) -> dict[str, tuple[int, ...]]:
    return {name: x.shape for name, x in point.inputs.items()}


def output_shapes(point: Point, names: Collection[str] | None = None) -> dict[str, tuple[int, ...]]:
    """Return the shapes of outputs; where the symbols do not tell, the forward pass does."""
    shapes = point.output_shapes
    if None in shapes.values():
        shapes = {name: y.shape for name, y in forward(point).run().items()}
    return {name: shape for name, shape in shapes.items() if shape is not None and (names is None or name in names)}


def live_inputs(point: Point, wrt: Sequence[str]) -> tuple[str, ...]:
    """Return those of the inputs ``wrt`` that derivatives reach."""
    return tuple(name for name in wrt if name in point.spec.inputs.live)


def _absent_filled(point: Point, wrt: Sequence[str], found: Mapping[str, Array | None]) -> Named:
    live = point.spec.inputs.live
    return {name: _or_disconnected(found[name]) if name in live else Absent.NOT_DIFFERENTIABLE for name in wrt}


def _or_disconnected(value: Array | None) -> Derivative:
    return Absent.DISCONNECTED if value is None else value


def _outputs(point: Point, found: Found) -> dict[str, Array]:
    values = {slot.name: present(found["outputs", slot.name]) for slot in point.op.outputs}
    for name, dtype in point.spec.outputs.dtypes.items():
        if dtype == BOOL:
            _refuse_odd_bytes(point.op.name, name, values[name])
    return values


def _refuse_odd_bytes(op: str, output: str, y: Array) -> None:
    """Refuse what a kernel left in a bool that is neither 0 nor 1: no format has a word for it."""
    try:
        bools(y.view(np.uint8))
    except Loss as loss:
        fault = OpFault("forward", output, expected=f"{loss.expected} for each bool", got=f"the byte {loss.got}")
        raise OpFailed(f"op {op}: {fault}", Entry((op, output), str(fault), fault.expected, fault.got)) from None
