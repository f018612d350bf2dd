"""Values and derivatives of an op at a point, from NumPy to NumPy; each function returns an ``Evaluation`` to run.

A missing derivative is an ``Absent``, never an invented zero; a zero that TensorFlow returns stays a zero.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TypeAlias, cast

import numpy as np

from app.autodiff import words
from app.autodiff.binding import need_linear
from app.autodiff.evaluation import Evaluation, present
from app.autodiff.point import Arrays, Point, Side
from app.autodiff.words import Step
from app.errors import Entry, OpFailed, wrong
from app.runtime.modes import Key, KeyedArrays
from app.tensors.casting import Loss, bools
from ops import BOOL, Array, OpFault


class Absent(StrEnum):
    """The reason why a derivative is missing."""

    NOT_DIFFERENTIABLE = "not_differentiable"
    DISCONNECTED = "disconnected"


Derivative: TypeAlias = Array | Absent
Derivatives: TypeAlias = dict[str, Derivative]
Shapes: TypeAlias = Mapping[str, tuple[int, ...]]


def forward(point: Point) -> Evaluation[Derivatives]:
    """Return the outputs; only those of a derived op may be absent."""
    return Evaluation(point, (), lambda results: _outputs(point, results))


def gradients(
    point: Point, wrt: Sequence[str], cotangents: Arrays | None, order: int
) -> Evaluation[tuple[Derivatives, list[Derivatives]]]:
    """Return the outputs and, for each order, the gradient of the sum of all gradients of the previous order."""
    _check_cotangents(point, cotangents)
    live = live_inputs(point, wrt)

    def finish(results: KeyedArrays) -> tuple[Derivatives, list[Derivatives]]:
        levels = range(1, order + 1)
        return _outputs(point, results), [_derivatives(wrt, point.spec.inputs, results, level) for level in levels]

    first, *later = _pullback(point, live, cotangents), *[words.vjp(live, live, ones=True)] * (order - 1)
    directions = (cotangents or {}, *[dict[str, Array]()] * (order - 1))
    return Evaluation(point, (first, *later), finish, directions, tuple(range(order)))


def vjp(
    point: Point, wrt: Sequence[str], cotangents: Arrays | None, *, batched: bool, outputs: bool
) -> Evaluation[tuple[Derivatives, Derivatives]]:
    """Return the outputs (empty unless ``outputs``) and the cotangents of the inputs ``wrt``.

    If ``batched``, cotangents and results have a leading axis of directions.
    """
    _check_cotangents(point, cotangents, batched=batched)
    live = live_inputs(point, wrt)
    if batched:
        point.admit(_directions(cotangents) * sum(point.inputs[name].size for name in live), "gradients")

    def finish(results: KeyedArrays) -> tuple[Derivatives, Derivatives]:
        return _outputs(point, results) if outputs else {}, _derivatives(wrt, point.spec.inputs, results, 1)

    word = (_pullback(point, live, cotangents),)
    return Evaluation(point, word, finish, (cotangents or {},), (0,) if outputs else (), batched)


def jvp(point: Point, tangents: Arrays, *, batched: bool) -> Evaluation[Derivatives]:
    """Return the tangents of the outputs, as the vjp of the vjp with respect to its cotangent.

    Raises ``Unprocessable`` if the op claims a gradient that is not linear in the cotangent.
    """
    need_linear(point.op, point.spec.attrs)
    _check_shapes(tangents, _input_shapes(point), "tangents", batched=batched)
    if batched:
        point.admit(
            _directions(tangents) * sum(math.prod(shape) for shape in output_shapes(point).values()), "tangents"
        )

    def finish(results: KeyedArrays) -> Derivatives:
        return _derivatives([slot.name for slot in point.op.outputs], point.spec.outputs, results, 1)

    word = (words.jvp(tuple(tangents), point.spec.outputs.live),)
    return Evaluation(point, word, finish, (tangents,), batched=batched)


def hvp(
    point: Point,
    wrt: Sequence[str],
    cotangents: Arrays | None,
    vectors: Arrays,
    *,
    batched: bool,
) -> Evaluation[Derivatives]:
    """Return Hᵀv: for each input i, Σ_j ∂⟨g_j, v_j⟩/∂x_i, where g is the vjp at ``cotangents``."""
    _check_cotangents(point, cotangents)
    _check_shapes(vectors, _input_shapes(point), "vectors", batched=batched)
    live = live_inputs(point, wrt)
    if batched:
        point.admit(_directions(vectors) * sum(point.inputs[name].size for name in live), "products")

    def finish(results: KeyedArrays) -> Derivatives:
        return _derivatives(wrt, point.spec.inputs, results, 2)

    along = tuple(vectors)
    word = _pullback(point, along, cotangents), words.vjp(live, along)
    return Evaluation(point, word, finish, (cotangents or {}, vectors), batched=batched)


def vjp_jvp(point: Point, wrt: Sequence[str], cotangents: Arrays | None, tangents: Arrays) -> Evaluation[Derivatives]:
    """Return Hv: for each input a in ``wrt``, the tangent of g_a along ``tangents``.

    g is the vjp at ``cotangents``. The tangent is Σ_b (∂g_a/∂x_b) v_b; ``hvp`` sums over the rows instead.
    They differ if the second order is not symmetric.
    """
    _check_cotangents(point, cotangents)
    _check_shapes(tangents, _input_shapes(point), "tangents", batched=False)
    live = live_inputs(point, wrt)

    def finish(results: KeyedArrays) -> Derivatives:
        return _derivatives(wrt, point.spec.inputs, results, 2)

    word = _pullback(point, live, cotangents), words.jvp(tuple(tangents), live)
    return Evaluation(point, word, finish, (cotangents or {}, tangents))


def hessian_diagonal(point: Point, wrt: Sequence[str], cotangents: Arrays | None) -> Evaluation[Derivatives]:
    """Return ∂g_a/∂x_a elementwise, in the shape of each input a, where g is the vjp at ``cotangents``.

    Raises ``Unprocessable`` unless the op is elementwise.
    """
    if point.op.batching != "elementwise":
        message = f"{point.op.name} is not elementwise, so its Hessian is not a diagonal"
        raise wrong(("diagonal",), message, expected="false", got="true")
    _check_cotangents(point, cotangents)
    live = live_inputs(point, wrt)

    def finish(results: KeyedArrays) -> Derivatives:
        return _derivatives(wrt, point.spec.inputs, results, 2)

    word = _pullback(point, live, cotangents), words.diagonal(live)
    return Evaluation(point, word, finish, (cotangents or {}, {}))


def _pullback(point: Point, wrt: Sequence[str], cotangents: Arrays | None) -> Step:
    """Return the step that pulls cotangents of the outputs back; without cotangents, ones for each output."""
    return words.vjp(
        tuple(wrt), point.spec.outputs.live if cotangents is None else tuple(cotangents), ones=cotangents is None
    )


def _check_cotangents(point: Point, cotangents: Arrays | None, *, batched: bool = False) -> None:
    if cotangents is not None:
        _check_shapes(cotangents, output_shapes(point), "cotangents", batched=batched)
    elif batched:
        expected = "cotangents with a leading axis of directions"
        raise wrong(("cotangents",), "a batched vjp needs cotangents", expected=expected, got="none")


def _check_shapes(directions: Arrays, shapes: Shapes, field: str, *, batched: bool) -> None:
    for name, direction in directions.items():
        shape, actual = shapes[name], direction.shape
        if batched and (not actual or actual[1:] != shape):
            expected = f"[directions, {', '.join(map(str, shape))}]" if shape else "[directions]"
            raise wrong((field, name), "shape mismatch", expected=expected, got=str(list(actual)))
        if not batched and actual != shape:
            raise wrong((field, name), "shape mismatch", expected=str(list(shape)), got=str(list(actual)))
    if batched and len(set(map(len, directions.values()))) > 1:
        lengths = {name: len(direction) for name, direction in directions.items()}
        raise wrong((field,), "the number of directions differs", expected="the same number", got=str(lengths))


def _directions(named: Arrays | None) -> int:
    return len(next(iter(named.values()))) if named else 0


def _input_shapes(point: Point) -> Shapes:
    return {name: x.shape for name, x in point.inputs.items()}


def output_shapes(point: Point) -> Shapes:
    """Return the shapes of the outputs; run the forward pass if the symbols do not determine them."""
    shapes = point.output_shapes
    if None in shapes.values():
        return {name: y.shape for name, y in forward(point).run().items() if not isinstance(y, Absent)}
    return cast(Shapes, shapes)


def live_inputs(point: Point, wrt: Sequence[str]) -> tuple[str, ...]:
    """Return the differentiable inputs among ``wrt``."""
    return tuple([name for name in wrt if name in point.spec.inputs.live])


def _derivatives(names: Iterable[str], side: Side, results: KeyedArrays, level: int) -> Derivatives:
    """Return the results of one level by name, or the reason for each missing one."""
    derivatives = Derivatives()
    for name in names:
        value = results[level, name] if name in side.live else Absent.NOT_DIFFERENTIABLE
        derivatives[name] = Absent.DISCONNECTED if value is None else value
    return derivatives


def _outputs(point: Point, results: KeyedArrays) -> Derivatives:
    outputs = Derivatives()
    for name, dtype in point.spec.outputs.dtypes.items():
        y = results[0, name]
        if y is not None and dtype == BOOL:
            _refuse_odd_bytes(point.op.name, name, y)
        outputs[name] = Absent.DISCONNECTED if y is None else y
    return outputs


def _refuse_odd_bytes(op: str, output: str, y: Array) -> None:
    """Raise ``OpFailed`` for a byte other than 0 and 1 in a kernel's bools: no format can represent it."""
    try:
        bools(y.view(np.uint8))
    except Loss as loss:
        fault = OpFault("forward", output, expected=f"{loss.expected} for each bool", got=f"the byte {loss.got}")
        raise OpFailed(f"op {op}: {fault}", Entry((op, output), str(fault), fault.expected, fault.got)) from None


def values_of(point: Point) -> Evaluation[dict[str, Array]]:
    """Return the outputs of an op that is not derived, which always exist."""
    return Evaluation(point, (), lambda results: {y.name: present(results[0, y.name]) for y in point.op.outputs})


def gradient(point: Point, cotangents: Arrays) -> Evaluation[dict[str, Array]]:
    """Return the cotangents of all differentiable inputs; zeros where no path exists."""
    live = point.spec.inputs.live

    def finish(results: KeyedArrays) -> dict[str, Array]:
        return {name: _or_zeros(results[1, name], point.inputs[name]) for name in live}

    return Evaluation(point, (words.vjp(live, tuple(cotangents)),), finish, (cotangents,))


def second_order_values(point: Point, cotangents: Arrays, vectors: Arrays) -> Evaluation[dict[Key, Array]]:
    """Return the values up to second order at a point, with x and dy as independent leaves; zeros where no path exists.

    Keys: ``("outputs", y)``; ``("gradients", x)``, dx at ``cotangents``; and the derivatives of Σ ⟨dx, v⟩, where v are
    the ``vectors``: ``("products", x)`` in x and ``("slots", y)`` in dy. ``cotangents`` needs every differentiable
    output, and ``vectors`` every differentiable input.
    """
    along, first = tuple(vectors), words.vjp(tuple(vectors), tuple(cotangents))
    slots = words.directions(first, point.op)

    def finish(results: KeyedArrays) -> dict[Key, Array]:
        found: dict[Key, Array] = {("outputs", y.name): present(results[0, y.name]) for y in point.op.outputs}
        for level, what in ((1, "gradients"), (2, "products")):
            found |= {(what, name): _or_zeros(results[level, name], v) for name, v in vectors.items()}
        return found | {("slots", y): _or_zeros(results[2, slots[y]], dy) for y, dy in cotangents.items()}

    word = first, words.vjp((*along, *slots.values()), along)
    return Evaluation(point, word, finish, (cotangents, vectors), (0, 1))


def composite(point: Point, weights: Arrays, vectors: Arrays) -> Evaluation[dict[Key, Array]]:
    """Return the gradient of Σ c y²/2, where c are the ``weights``, and its derivative along the ``vectors``.

    Keys: ``("gradients", x)`` and ``("products", x)``; zeros where no path exists.
    """
    along, of = tuple(vectors), tuple(weights)

    def finish(results: KeyedArrays) -> dict[Key, Array]:
        levels = ((2, "gradients"), (3, "products"))
        return {(what, x): _or_zeros(results[level, x], v) for level, what in levels for x, v in vectors.items()}

    word = words.half_square(of), words.vjp(along, of, ones=True), words.vjp(along, along)
    return Evaluation(point, word, finish, (weights, {}, vectors), (2,))


def _or_zeros(value: Array | None, like: Array) -> Array:
    return np.zeros_like(like) if value is None else value
