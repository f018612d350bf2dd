"""Draw valid points of an op, as its author declares them: by ``Op.sample``, or from the domains of the inputs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from app.autodiff.derived import origin
from app.autodiff.padded_rows import PaddedRows
from app.autodiff.point import Point, blame_op
from ops import BOOL, FLOATS, Array, Input, Op

Dimensions: TypeAlias = Mapping[str, tuple[int, ...]]
"""The sizes of the dimensions that a symbol stands for; of those that are not named, one of 3."""
THREES: Dimensions = {}
# How far random numbers stay from kinks and poles, as a fraction of the domain.
KINK_DISTANCE = 1 / 32
# How often an author's function is asked for a point of the right shape.
DRAWS = 24


def draw(
    op: Op, attrs: Mapping[str, Any], dtype: str, rng: np.random.Generator, dimensions: Dimensions = THREES
) -> dict[str, Array]:
    """Draw a valid point, away from kinks and poles."""
    if op.sample is not None:
        model = op.attrs.model_validate(attrs)
        with blame_op(op, "sample"):
            drawn: dict[str, Any] = {each.name: each.drawn(rng) for each in op.parameters}
            drawn |= op.sample(rng, dtype, model)
            arrays = {slot.name: np.asarray(drawn[slot.name]) for slot in op.inputs}
            for x in arrays.values():
                x.astype(np.float64)  # raises for anything but numbers
            return {**drawn, **arrays}
    return draw_from_domains(op, dtype, rng, dimensions)


def draw_from_domains(op: Op, dtype: str, rng: np.random.Generator, dimensions: Dimensions) -> dict[str, Array]:
    """Draw each input from its domain, away from kinks and poles; the op may reject some of these points."""
    shapes = {slot: shape_of(slot, dimensions) for slot in op.inputs}
    return {slot.name: in_slot(op, slot, dtype, rng, rng.uniform(size=shape)) for slot, shape in shapes.items()}


def shape_of(slot: Input, dimensions: Dimensions) -> tuple[int, ...]:
    """Return the shape of an input where its symbols have these dimensions."""
    return tuple(n for s in slot.shape for n in ([s] if isinstance(s, int) else dimensions.get(s, (3,))))


def in_slot(op: Op, slot: Input, dtype: str, rng: np.random.Generator, fractions: Array) -> Array:
    """Return the numbers at these fractions of an input's domain, away from its kinks and poles, or bools.

    Those of a parameter that declares no domain are around its value.
    """
    if (parameter := op.parameter(slot.name)) is not None and parameter.domain is None:
        return parameter.around(fractions)
    kind = op.dtype_of(slot, dtype)
    if kind == BOOL:
        return rng.integers(0, 2, fractions.shape) == 1
    low, high = slot.domain
    numbers = low + (high - low) * fractions
    if kind not in FLOATS:
        numbers = np.floor(numbers)
    room = KINK_DISTANCE * (high - low)
    for at in (*slot.kinks, *slot.poles):
        away = at + 1.5 * room if at + 2 * room < high else at - 1.5 * room
        numbers = np.where(np.abs(numbers - at) < room, away, numbers)
    return numbers


@dataclass(frozen=True)
class RowDraws:
    """Draws rows for a packing; shared inputs, and rows near those of a request, are from ``leaves`` at ``point``."""

    rows: PaddedRows
    point: Point
    leaves: Sequence[Array]
    rng: np.random.Generator

    def accepts(self, leaves: Sequence[Array]) -> bool:
        """Return whether the op's own function for that accepts the inputs of a call."""
        op = self.rows.program.op
        inputs = {slot.name: x for slot, x in zip(op.inputs, leaves, strict=False)}
        try:
            if op.validate is not None:
                op.validate(inputs, self.point.spec.attrs)
        except Exception:  # noqa: BLE001 - most are InvalidInput, but an author's function may raise anything
            return False
        return True

    def valid_rows(self, count: int) -> list[list[Array]]:
        """Return up to ``count`` valid rows, each with its part of all inputs; of a shared input, that is the whole."""
        found, units = list[list[Array]](), self.rows.units
        for drawn in self._candidates(count):
            columns = [self._as_rows(i, drawn) for i, _ in enumerate(self.rows.program.op.inputs)]
            sizes = {len(x) for x, unit in zip(columns, units, strict=False) if x is not None and unit is not None}
            for row in range(sizes.pop() if len(sizes) == 1 else 0):
                cut = list[Array]()
                for x, unit, leaf in zip(columns, units, self.leaves, strict=False):
                    if x is None:  # a direction of a derived op
                        cut.append(self.rng.standard_normal((1, *(unit or ()))).astype(leaf.dtype))
                    else:
                        cut.append(x if unit is None else x[row : row + 1])
                if len(found) < count and self.accepts(cut):
                    found.append(cut)
            if len(found) == count:
                break
        return found

    def _as_rows(self, i: int, drawn: Mapping[str, Any]) -> Array | None:
        """Return the rows of an input in a point, none if they have another shape; ``None`` if it is not in the point.

        A shared input is that of the request.
        """
        leaf, unit, name = self.leaves[i], self.rows.units[i], self.rows.program.leaf_names[i]
        if unit is None:
            return leaf
        if name not in drawn:
            return None
        x = np.asarray(drawn[name])
        has_shape = x.ndim >= len(unit) and x.shape[x.ndim - len(unit) :] == unit
        with np.errstate(over="ignore"):
            return x.astype(leaf.dtype).reshape(-1, *unit) if has_shape else np.empty((0, *unit), leaf.dtype)

    def _candidates(self, count: int) -> Iterator[Mapping[str, Any]]:
        """Yield points: drawn ones, those of the examples, and those near the request's, which have the right shape."""
        (op, _), spec = origin(self.rows.program.op), self.point.spec
        attrs, dims = spec.attrs.model_dump(), self.point.dims.items()
        sizes: Dimensions = {name: size if isinstance(size, tuple) else (size,) for name, size in dims}
        sizes = {**sizes, str(op.outputs[0].shape[0]): (count,)}
        for _ in range(DRAWS if op.sample is not None else 0):
            yield draw(op, attrs, spec.dtype, self.rng)
        yield from (example.inputs for example in op.examples)
        for _ in range(2):
            yield draw_from_domains(op, spec.dtype, self.rng, sizes)
        own = dict(zip(self.rows.program.leaf_names, self.leaves, strict=True))
        for _ in range(count):
            changed = dict[str, Array]()
            for slot in op.inputs:
                x = own[slot.name]
                factor = 1 if x.dtype.kind in "iub" else self.rng.uniform(0.9, 1.1, x.shape)
                changed[slot.name] = x * factor
            yield changed
        yield own
