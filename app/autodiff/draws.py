"""Draw valid points of an op, as its author declares them: by ``Op.sample``, or from the domains of the inputs."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from app.autodiff.point import blame_op
from ops import BOOL, FLOATS, Array, Input, Op

Dimensions: TypeAlias = Mapping[str, tuple[int, ...]]
"""The sizes of the dimensions that a symbol stands for; of those that are not named, one of 3."""
THREES: Dimensions = {}
# How far random numbers stay from kinks and poles, as a fraction of the domain.
KINK_DISTANCE = 1 / 32


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
