"""Values and derivatives of an op at a point, from NumPy to NumPy; each function returns an ``Evaluation`` to run.

Each is a sequence of transforms with their seeds. A missing derivative is an ``Absent``, never an invented zero; a zero
that TensorFlow returns stays a zero.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, TypeAlias, TypeVar, cast, get_args

import numpy as np

from app.autodiff.absent import Absent
from app.autodiff.binding import need_linear, need_order
from app.autodiff.derived import DerivedOp, origin
from app.autodiff.evaluation import Evaluation
from app.autodiff.point import Arrays, Point, Side, Spec
from app.autodiff.transforms import Transform, signature
from app.errors import Entry, OpFailed, wrong
from app.runtime.modes import Key, KeyedArrays, present
from app.tensors.casting import Loss, bools
from app.tensors.dtypes import DTYPES
from ops import BOOL, Array, OpFault

K = TypeVar("K")


Derivative: TypeAlias = Array | Absent
Derivatives: TypeAlias = dict[str, Derivative]
Shapes: TypeAlias = Mapping[str, tuple[int, ...]]
Kind: TypeAlias = Literal["outputs", "gradients", "slots", "products"]
"""The kinds of values that checks compare, those that need more of TensorFlow last: see ``values_up_to``."""
KINDS: tuple[Kind, ...] = get_args(Kind)


def forward(point: Point) -> Evaluation[Derivatives]:
    """Return the outputs; only those of a derived op may be absent."""
    return Evaluation(point, (), partial(outputs_of, point.spec))


def gradients(
    point: Point, wrt: Sequence[str], cotangents: Arrays | None, order: int
) -> Evaluation[tuple[Derivatives, list[Derivatives]]]:
    """Return the outputs and, for each order, the gradient of the sum of all gradients of the previous order."""
    need_order(point.op, point.spec.attrs, order)
    inputs, spec = differentiable_inputs(point, wrt), point.spec

    def finish(results: KeyedArrays) -> tuple[Derivatives, list[Derivatives]]:
        levels = range(1, order + 1)
        return outputs_of(spec, results), [_derivatives(wrt, spec.inputs, level, results) for level in levels]

    later = [Transform("vjp", inputs, inputs, ones=True)] * (order - 1)
    seeds = (cotangents or {}, *[dict[str, Array]()] * (order - 1))
    return Evaluation(point, (_pullback(point, inputs, cotangents), *later), finish, seeds, tuple(range(order)))


def vjp(
    point: Point, wrt: Sequence[str], cotangents: Arrays | None, *, batched: bool, outputs: bool
) -> Evaluation[tuple[Derivatives, Derivatives]]:
    """Return the outputs (empty unless ``outputs``) and the cotangents of the inputs ``wrt``.

    If ``batched``, cotangents and results have a leading axis of directions.
    """
    need_order(point.op, point.spec.attrs, 1)
    inputs, spec = differentiable_inputs(point, wrt), point.spec
    first = _pullback(point, inputs, cotangents, batched=batched)
    if batched:
        _admit_rows(point, cotangents or {}, [point.inputs[name].shape for name in inputs], "gradients")

    def finish(results: KeyedArrays) -> tuple[Derivatives, Derivatives]:
        return outputs_of(spec, results) if outputs else {}, _derivatives(wrt, spec.inputs, 1, results)

    return Evaluation(point, (first,), finish, (cotangents or {},), (0,) if outputs else (), batched)


def jvp(point: Point, tangents: Arrays, *, batched: bool) -> Evaluation[Derivatives]:
    """Return the tangents of the outputs, as the vjp of the vjp with respect to its cotangent.

    Raises ``Unprocessable`` if the op claims a gradient that is not linear in the cotangent.
    """
    need_linear(point.op, point.spec.attrs)
    need_order(point.op, point.spec.attrs, 1)
    _check_shapes(tangents, point.spec.inputs, _input_shapes(point), "tangents", batched=batched)
    if batched:
        _admit_rows(point, tangents, output_shapes(point).values(), "tangents")
    outputs = point.spec.outputs
    transforms = (Transform("jvp", tuple(tangents), outputs.differentiable),)
    finish = partial(_derivatives, (*outputs.dtypes, *outputs.absent), outputs, 1)
    return Evaluation(point, transforms, finish, (tangents,), batched=batched)


def hvp(
    point: Point, wrt: Sequence[str], cotangents: Arrays | None, vectors: Arrays, *, batched: bool
) -> Evaluation[Derivatives]:
    """Return Hᵀv: for each input i, Σ_j ∂⟨g_j, v_j⟩/∂x_i, where g is the vjp at ``cotangents``."""
    need_order(point.op, point.spec.attrs, 2)
    first, along = _pullback(point, tuple(vectors), cotangents), tuple(vectors)
    _check_shapes(vectors, point.spec.inputs, _input_shapes(point), "vectors", batched=batched)
    inputs = differentiable_inputs(point, wrt)
    if batched:
        _admit_rows(point, vectors, [point.inputs[name].shape for name in inputs], "products")
    transforms = first, Transform("vjp", inputs, along)
    finish = partial(_derivatives, wrt, point.spec.inputs, 2)
    return Evaluation(point, transforms, finish, (cotangents or {}, vectors), batched=batched)


def vjp_jvp(point: Point, wrt: Sequence[str], cotangents: Arrays | None, tangents: Arrays) -> Evaluation[Derivatives]:
    """Return Hv: for each input a in ``wrt``, the tangent of g_a along ``tangents``.

    g is the vjp at ``cotangents``. The tangent is Σ_b (∂g_a/∂x_b) v_b; ``hvp`` sums over the rows instead.
    They differ if the second order is not symmetric.
    """
    need_order(point.op, point.spec.attrs, 2)
    inputs = differentiable_inputs(point, wrt)
    transforms = _pullback(point, inputs, cotangents), Transform("jvp", tuple(tangents), inputs)
    _check_shapes(tangents, point.spec.inputs, _input_shapes(point), "tangents", batched=False)
    finish = partial(_derivatives, wrt, point.spec.inputs, 2)
    return Evaluation(point, transforms, finish, (cotangents or {}, tangents))


def hessian_diagonal(point: Point, wrt: Sequence[str], cotangents: Arrays | None) -> Evaluation[Derivatives]:
    """Return ∂g_a/∂x_a elementwise, in the shape of each input a, where g is the vjp at ``cotangents``.

    Raises ``Unprocessable`` unless the op is elementwise.
    """
    if point.spec.batching != "elementwise":
        message = f"{point.op.name} is not elementwise, so its Hessian is not a diagonal"
        raise wrong(("diagonal",), message, expected="false", got="true")
    need_order(point.op, point.spec.attrs, 2)
    inputs = differentiable_inputs(point, wrt)
    transforms = _pullback(point, inputs, cotangents), Transform("diagonal", inputs, inputs)
    finish = partial(_derivatives, wrt, point.spec.inputs, 2)
    return Evaluation(point, transforms, finish, (cotangents or {}, {}))


def _pullback(point: Point, wrt: tuple[str, ...], cotangents: Arrays | None, *, batched: bool = False) -> Transform:
    """Return the vjp of the outputs at cotangents, by default ones; raise ``Unprocessable`` for wrong shapes."""
    if cotangents is not None:
        _check_shapes(cotangents, point.spec.outputs, output_shapes(point), "cotangents", batched=batched)
        return Transform("vjp", wrt, tuple(cotangents))
    if batched:
        expected = "cotangents with a leading axis of directions"
        raise wrong(("cotangents",), "a batched vjp needs cotangents", expected=expected, got="none")
    return Transform("vjp", wrt, point.spec.outputs.differentiable, ones=True)


def _check_shapes(directions: Arrays, side: Side, shapes: Shapes, field: str, *, batched: bool) -> None:
    """Raise ``Unprocessable`` for directions of other shapes; if ``batched``, they have a leading axis besides."""
    for name, direction in directions.items():
        shape, actual = shapes[name], direction.shape
        if (actual[1:] != shape or not actual) if batched else actual != shape:
            wanted, got = side.shown_shape(name, shape), side.shown_shape(name, actual)
            expected = f"[{', '.join(map(str, ['directions', *wanted] if batched else wanted))}]"
            raise wrong((field, name), "shape mismatch", expected=expected, got=str(got))
    if batched and len(set(map(len, directions.values()))) > 1:
        lengths = {name: len(direction) for name, direction in directions.items()}
        raise wrong((field,), "the number of directions differs", expected="the same number", got=str(lengths))


def _admit_rows(point: Point, directions: Arrays, shapes: Iterable[tuple[int, ...]], what: str) -> None:
    """Raise ``Unprocessable`` if the results for all directions, of these shapes for each, have too many elements."""
    count = len(next(iter(directions.values()), ()))
    point.admit(count * sum(map(math.prod, shapes)), what)


def _input_shapes(point: Point) -> Shapes:
    return {name: x.shape for name, x in point.inputs.items()}


def output_shapes(point: Point) -> Shapes:
    """Return the shapes of the outputs; run the forward pass if the symbols do not determine them."""
    shapes = point.output_shapes
    if None in shapes.values():
        plain = replace(point, spec=replace(point.spec, errors=None))
        return {name: y.shape for name, y in forward(plain).run().items() if not isinstance(y, Absent)}
    return cast(Shapes, shapes)


def differentiable_inputs(point: Point, wrt: Sequence[str]) -> tuple[str, ...]:
    """Return the differentiable inputs among ``wrt``."""
    return tuple(filter(point.spec.inputs.differentiable.__contains__, wrt))


def without_derivative(side: Side, name: str) -> Absent:
    """Return why a slot that is not differentiable has no derivative."""
    return Absent.NOT_SENT if name in side.absent else Absent.NOT_DIFFERENTIABLE


def _derivatives(names: Iterable[str], side: Side, level: int, results: KeyedArrays) -> Derivatives:
    """Return the results of one level by name, or the reason for each missing one."""
    derivatives = Derivatives()
    for name in names:
        value = results[level, name] if name in side.differentiable else without_derivative(side, name)
        derivatives[name] = Absent.DISCONNECTED if value is None else value
    return derivatives


def outputs_of(spec: Spec, results: KeyedArrays) -> Derivatives:
    """Return the outputs; raise ``OpFailed`` for a byte other than 0 and 1 in a bool, which no format can represent."""
    outputs: Derivatives = dict.fromkeys(spec.outputs.absent, Absent.NOT_SENT)
    for name, dtype in spec.outputs.dtypes.items():
        y = results[0, name]
        if y is not None and dtype == BOOL:
            try:
                bools(y.view(np.uint8))
            except Loss as loss:
                fault = OpFault("forward", name, expected=f"{loss.expected} for each bool", got=f"the byte {loss.got}")
                entry = Entry((spec.op.name, name), str(fault), fault.expected, fault.got)
                raise OpFailed(f"op {spec.op.name}: {fault}", entry) from None
        outputs[name] = Absent.DISCONNECTED if y is None else y
    return outputs


def values_of(point: Point) -> Evaluation[dict[str, Array]]:
    """Return the outputs of an op that is not derived, which always exist."""
    return Evaluation(point, (), lambda results: {y.name: present(results[0, y.name]) for y in point.op.outputs})


def gradient(point: Point, cotangents: Arrays) -> Evaluation[dict[str, Array]]:
    """Return the cotangents of all differentiable inputs; zeros where no path exists."""
    inputs = point.spec.inputs.differentiable
    wanted = {name: ((1, name), point.inputs[name]) for name in inputs}
    transforms = (Transform("vjp", inputs, tuple(cotangents)),)
    return Evaluation(point, transforms, partial(_with_zeros, wanted), (cotangents,))


def second_order_values(point: Point, cotangents: Arrays, vectors: Arrays) -> Evaluation[dict[Key, Array]]:
    """Return all values up to second order at a point: see ``values_up_to``."""
    return values_up_to("products", point, cotangents, vectors)


def values_up_to(last: Kind, point: Point, cotangents: Arrays, vectors: Arrays) -> Evaluation[dict[Key, Array]]:
    """Return the values of each kind up to ``last``, with x and dy as independent leaves; zeros where no path exists.

    Keys: ``("outputs", y)``; ``("gradients", x)``, dx at ``cotangents``; and the derivatives of Σ ⟨dx, v⟩, where v are
    the ``vectors``: ``("slots", y)`` in dy, which need no second order in TensorFlow, and ``("products", x)`` in x.
    ``cotangents`` needs every differentiable output, and ``vectors`` every differentiable input. What belongs to later
    kinds is not evaluated.
    """
    op, along, kinds = point.op, tuple(vectors), KINDS[: KINDS.index(last) + 1]
    first = Transform("vjp", along, tuple(cotangents))
    inputs, outputs = (dict.fromkeys(slot.name for slot in slots) for slots in (op.inputs, op.outputs))
    (leaves,) = signature((first,), inputs, outputs, origin(op)[0].taken_names).seeds
    missing = _zero_outputs(point) if isinstance(op, DerivedOp) else outputs
    wanted: dict[Key, tuple[Key, Array | None]] = {("outputs", y): ((0, y), missing[y]) for y in outputs}
    wanted |= {("gradients", x): ((1, x), v) for x, v in vectors.items()}
    wanted |= {("products", x): ((2, x), v) for x, v in vectors.items()}
    wanted |= {("slots", y): ((2, leaves[y]), dy) for y, dy in cotangents.items()}
    wanted = {key: of for key, of in wanted.items() if key[0] in kinds}
    second = Transform("vjp", (*(along if last == "products" else ()), *leaves.values()), along)
    transforms = (first, second)[: min(KINDS.index(last), 2)]
    seeds, kept = (cotangents, vectors)[: len(transforms)], tuple(range(len(transforms)))
    return Evaluation(point, transforms, partial(_with_zeros, wanted), seeds, kept)


def _zero_outputs(point: Point) -> dict[str, Array]:
    """Return zeros for the outputs of a derived op, which may be missing."""
    dtypes, shapes = point.spec.outputs.dtypes, output_shapes(point)
    return {name: np.broadcast_to(np.zeros((), DTYPES[dtypes[name]].numpy), shape) for name, shape in shapes.items()}


def composite(point: Point, weights: Arrays, vectors: Arrays) -> Evaluation[dict[Key, Array]]:
    """Return the gradient of Σ c y²/2, where c are the ``weights``, and its derivative along the ``vectors``.

    Keys: ``("gradients", x)`` and ``("products", x)``; zeros where no path exists.
    """
    along, of = tuple(vectors), tuple(weights)
    wanted: dict[Key, tuple[Key, Array | None]] = {("gradients", x): ((2, x), v) for x, v in vectors.items()}
    wanted |= {("products", x): ((3, x), v) for x, v in vectors.items()}
    squared, first = Transform("half_square", (), of), Transform("vjp", along, of, ones=True)
    transforms = squared, first, Transform("vjp", along, along)
    return Evaluation(point, transforms, partial(_with_zeros, wanted), (weights, {}, vectors), (2,))


def _with_zeros(wanted: Mapping[K, tuple[Key, Array | None]], results: KeyedArrays) -> dict[K, Array]:
    """Return the wanted results by name: each has its key, and the array whose zeros replace it if it is missing."""
    return {
        name: np.zeros_like(like) if (value := results[key]) is None and like is not None else present(value)
        for name, (key, like) in wanted.items()
    }
