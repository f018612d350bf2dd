"""Values and derivatives of an op at a point: forward, gradients, vjp, jvp, hvp, from NumPy to NumPy.

A derivative that does not exist is an ``Absent``, never a zero made up; a zero that TensorFlow returns stays one.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import TypeAlias

import numpy as np

from app import modes
from app.binding import Point, authored, number
from app.errors import wrong
from app.modes import Key
from app.op_errors import op_errors
from app.programs import Kind, Program
from ops import Array, OpFault, Output


class Absent(StrEnum):
    """Why there is no derivative."""

    NOT_DIFFERENTIABLE = "not_differentiable"
    DISCONNECTED = "disconnected"


# Numbers that the directions of one call may come with, 32 MB of float64, and multiply-adds: a second or so.
CALL_ELEMENTS = 1 << 22
CALL_COST = 1 << 33
_BATCHED = ("gradients", "tangents", "products")

Derivative: TypeAlias = Array | Absent
Named: TypeAlias = dict[str, Derivative]


def forward(point: Point) -> dict[str, Array]:
    """Return the outputs."""
    found = run_at(point, "forward")
    return {slot.name: _array(found["outputs", slot.name]) for slot in point.op.outputs}


def gradients(
    point: Point, wrt: Sequence[str], cotangents: Mapping[str, Array] | None, order: int
) -> tuple[dict[str, Array], list[Named]]:
    """Return the outputs and, an order at a time, the gradient of the sum of all gradients of the order before."""
    _check_cotangents(point, cotangents)
    live = live_inputs(point, wrt)
    found = run_at(point, "gradients", wrt=live, cotangents=cotangents, order=order, outputs=True)
    outputs = {slot.name: _array(found["outputs", slot.name]) for slot in point.op.outputs}
    levels = [{name: found.get((k, name)) for name in live} for k in range(order)]
    return outputs, [_absent_filled(point, wrt, level) for level in levels]


def vjp(
    point: Point, wrt: Sequence[str], cotangents: Mapping[str, Array] | None, *, batched: bool, outputs: bool
) -> tuple[dict[str, Array], Named]:
    """Return the outputs (empty unless asked for) and the cotangents of the inputs ``wrt``.

    ``batched``: cotangents and answers have a leading axis of directions.
    """
    _check_cotangents(point, cotangents, batched=batched)
    live = live_inputs(point, wrt)
    if batched:
        point.admit(_directions(cotangents) * sum(point.inputs[name].size for name in live), "gradients")
    found = run_at(point, "vjp", wrt=live, cotangents=cotangents, batched=batched, outputs=outputs)
    values = {slot.name: _array(found["outputs", slot.name]) for slot in point.op.outputs if outputs}
    return values, _absent_filled(point, wrt, {name: found["gradients", name] for name in live})


def jvp(point: Point, tangents: Mapping[str, Array], *, batched: bool) -> Named:
    """Return the tangents of the outputs, as the vjp of the vjp with respect to its cotangent.

    Raises ``Unprocessable`` where the op claims a gradient that is not linear in the cotangent.
    """
    with authored(point.op, "claim"):
        linear = point.op.claim(point.attrs).linear
    if not linear:
        message = f"the gradient of {point.op.name} is not linear in the cotangent here, so it has no jvp"
        raise wrong(("attrs",), message, expected="attributes that make it linear", got="a non-linear gradient")
    _check_inputs_shapes(point, tangents, "tangents", batched=batched)
    if batched:
        point.admit(
            _directions(tangents) * sum(math.prod(shape) for shape in output_shapes(point).values()), "tangents"
        )
    found = run_at(point, "jvp", along=tangents, batched=batched)
    live = point.differentiable(point.op.outputs)
    return {
        slot.name: _or_disconnected(found["tangents", slot.name]) if slot.name in live else Absent.NOT_DIFFERENTIABLE
        for slot in point.op.outputs
    }


def hvp(
    point: Point,
    wrt: Sequence[str],
    cotangents: Mapping[str, Array] | None,
    vectors: Mapping[str, Array],
    *,
    batched: bool,
) -> Named:
    """Return Hᵀv: for each input i the sum over j of the derivative of ⟨g_j, v_j⟩, g the vjp at ``cotangents``."""
    _check_cotangents(point, cotangents)
    _check_inputs_shapes(point, vectors, "vectors", batched=batched)
    live = live_inputs(point, wrt)
    if batched:
        point.admit(_directions(vectors) * sum(point.inputs[name].size for name in live), "products")
    found = run_at(point, "hvp", wrt=live, cotangents=cotangents, along=vectors, batched=batched)
    return _absent_filled(point, wrt, {name: found["products", name] for name in live})


def program_at(
    point: Point,
    kind: Kind,
    *,
    wrt: tuple[str, ...] = (),
    cotangents: Mapping[str, Array] | None = None,
    along: Mapping[str, Array] | None = None,
) -> tuple[Program, list[Array]]:
    """Return a program of the point's op, and the point's leaves for it."""
    named = None if cotangents is None else tuple(cotangents)
    static = tuple(point.attrs.static().items())
    program = Program(point.op, point.dtype, static, kind, wrt=wrt, cotangents=named, along=tuple(along or {}))
    return program, _leaves(point, cotangents, along)


def _leaves(point: Point, cotangents: Mapping[str, Array] | None, along: Mapping[str, Array] | None) -> list[Array]:
    numbers = [number(value, point.dtype) for value in point.attrs.numbers().values()]
    return [*point.inputs.values(), *numbers, *(cotangents or {}).values(), *(along or {}).values()]


def run_at(
    point: Point,
    kind: Kind,
    *,
    wrt: tuple[str, ...] = (),
    cotangents: Mapping[str, Array] | None = None,
    along: Mapping[str, Array] | None = None,
    order: int = 1,
    batched: bool = False,
    outputs: bool = False,
) -> dict[Key, Array | None]:
    """Run one program at the point, and check the shapes of the gradients that it returned or went through."""
    along = along or {}
    if batched and _directions(rows := along or cotangents) > rows_per_call(point):
        return _run_in_parts(point, kind, rows or {}, wrt=wrt, cotangents=cotangents, outputs=outputs)
    static = tuple(point.attrs.static().items())
    named = None if cotangents is None else tuple(cotangents)
    program = Program(
        point.op, point.dtype, static, kind, order, wrt, named, tuple(along), batched=batched, outputs=outputs
    )
    leaves = _leaves(point, cotangents, along)
    simpler = _simpler(point, kind, tuple(along), cotangents)
    with op_errors(point.op.name, simpler):
        found = modes.run(program, point.mode, leaves, point.device)
        for key, value in found.items():
            if value is not None:
                _check_shape(point, found, key, value, batched=batched)
    return found


def rows_per_call(point: Point) -> int:
    """Return how many directions one call may take, so that its memory and its time are bounded."""
    outputs = [point.output_shape(slot) or () for slot in point.op.outputs]
    per_row = sum(x.size for x in point.inputs.values()) + sum(map(math.prod, outputs))
    return max(1, min(CALL_ELEMENTS // (per_row + 1), CALL_COST // (point.cost + 1)))


def _run_in_parts(
    point: Point,
    kind: Kind,
    directions: Mapping[str, Array],
    *,
    wrt: tuple[str, ...],
    cotangents: Mapping[str, Array] | None,
    outputs: bool,
) -> dict[Key, Array | None]:
    """Run a batched program on some directions after the other, and join what comes."""
    count, rows = _directions(directions), rows_per_call(point)
    point.admit_work(count)
    parts: list[dict[Key, Array | None]] = []
    for start in range(0, count, rows):
        chunk = {name: direction[start : start + rows] for name, direction in directions.items()}
        along, dys = (None, chunk) if kind == "vjp" else (chunk, cotangents)
        parts.append(run_at(point, kind, wrt=wrt, cotangents=dys, along=along, batched=True, outputs=outputs))
    joined = parts[0]
    for key in [key for key, value in joined.items() if key[0] in _BATCHED and value is not None]:
        joined[key] = np.concatenate([_array(part[key]) for part in parts])
    return joined


def _simpler(
    point: Point, kind: Kind, along: tuple[str, ...], cotangents: Mapping[str, Array] | None
) -> Callable[[], object] | None:
    """Return the work that tells whether the op refuses its inputs, or whether its gradient is at fault."""
    match kind:
        case "forward":
            return None
        case "gradients" | "vjp":
            return partial(run_at, point, "forward")
        case "jvp" | "hvp" | "second" | "composite":
            return partial(run_at, point, "vjp", wrt=along, cotangents=cotangents)


def _check_shape(point: Point, found: Mapping[Key, Array | None], key: Key, value: Array, *, batched: bool) -> None:
    """Refuse an output or a gradient of another shape than it must have: TensorFlow broadcasts such without a word."""
    what, name = key
    if what in ("outputs", "output shape"):
        output = next(slot for slot in point.op.outputs if slot.name == name)
        function, expected = "forward", point.output_shape(output)
    elif what in ("tangents", "slots"):
        function, expected = "the gradient of the gradient function", _output_shape(found, name)
    else:
        function, expected = "the gradient function", point.inputs[name].shape
    if what in ("output shape", "gradient shape"):
        shape = _told(value)
    else:
        shape = value.shape[int(batched and what != "outputs") :]
    if expected is not None and shape != expected:
        raise OpFault(function, name, expected=f"shape {list(expected)}", got=f"{list(shape)}")


def _output_shape(found: Mapping[Key, Array | None], name: str) -> tuple[int, ...]:
    """Return the shape of an output of a run, which came itself or as a tensor that tells it."""
    return (
        _told(found["output shape", name]) if ("output shape", name) in found else _array(found["outputs", name]).shape
    )


def _told(shape: Array | None) -> tuple[int, ...]:
    """Return a shape that came as a tensor."""
    return tuple(int(size) for size in _array(shape))


def _check_cotangents(point: Point, cotangents: Mapping[str, Array] | None, *, batched: bool = False) -> None:
    if cotangents is not None:
        shapes = output_shapes(point, tuple(cotangents))
        for name, dy in cotangents.items():
            _match(("cotangents", name), dy.shape, shapes[name], batched=batched)
        _one_length(cotangents, "cotangents", batched=batched)
    elif batched:
        expected = "cotangents with a leading axis of directions"
        raise wrong(("cotangents",), "a batched vjp needs cotangents", expected=expected, got="none")


def _check_inputs_shapes(point: Point, directions: Mapping[str, Array], field: str, *, batched: bool) -> None:
    for name, direction in directions.items():
        _match((field, name), direction.shape, point.inputs[name].shape, batched=batched)
    _one_length(directions, field, batched=batched)


def _directions(named: Mapping[str, Array] | None) -> int:
    return len(next(iter(named.values()))) if named else 0


def _match(loc: tuple[str, str], shape: tuple[int, ...], wanted: tuple[int, ...], *, batched: bool) -> None:
    if batched and (not shape or shape[1:] != wanted):
        expected = f"[directions, {', '.join(map(str, wanted))}]" if wanted else "[directions]"
        raise wrong(loc, "a direction has another shape", expected=expected, got=str(list(shape)))
    if not batched and shape != wanted:
        raise wrong(loc, "the shape is another one", expected=str(list(wanted)), got=str(list(shape)))


def _one_length(directions: Mapping[str, Array], field: str, *, batched: bool) -> None:
    lengths = {name: len(direction) for name, direction in directions.items()} if batched else {}
    if len(set(lengths.values())) > 1:
        raise wrong((field,), "they differ in their number of directions", expected="one number", got=str(lengths))


def output_shapes(point: Point, names: tuple[str, ...] | None = None) -> dict[str, tuple[int, ...]]:
    """Return the shapes of outputs; where the symbols do not tell, the forward pass does."""
    slots: list[Output] = [slot for slot in point.op.outputs if names is None or slot.name in names]
    shapes = {slot.name: point.output_shape(slot) for slot in slots}
    if any(shape is None for shape in shapes.values()):
        return {name: y.shape for name, y in forward(point).items() if name in shapes}
    return {name: shape for name, shape in shapes.items() if shape is not None}


def live_inputs(point: Point, wrt: Sequence[str]) -> tuple[str, ...]:
    """Return those of the inputs ``wrt`` that derivatives reach."""
    differentiable = point.differentiable(point.op.inputs)
    return tuple(name for name in wrt if name in differentiable)


def _absent_filled(point: Point, wrt: Sequence[str], found: Mapping[str, Array | None]) -> Named:
    live = point.differentiable(point.op.inputs)
    return {name: _or_disconnected(found[name]) if name in live else Absent.NOT_DIFFERENTIABLE for name in wrt}


def _or_disconnected(value: Array | None) -> Derivative:
    return Absent.DISCONNECTED if value is None else value


def _array(value: Array | None) -> Array:
    assert value is not None
    return value
