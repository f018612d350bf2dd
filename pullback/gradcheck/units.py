"""The units of a function's outputs: powers of two near the size of each number, where sizes are far apart."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from pullback.dtypes import Array
from pullback.errors import ModelFailed
from pullback.gradcheck import floats
from pullback.gradcheck.function import Arrays, Point, Slot
from pullback.gradcheck.meter import Meter
from pullback.gradcheck.sample import vectors
from pullback.gradcheck.scales import are_far_apart, balance

STEP = 2.0**-8
"""How far numbers of inputs move, as a fraction of them, to show how sensitive the outputs are."""
SMOOTH = 0.5
"""How far twice the change at half the step may be from that at the whole step, as a fraction of it: more is noise."""
NARROWEST = "float32"
"""The narrowest dtype that has room for such units."""


def units(
    meter: Meter,
    points: Sequence[tuple[Point, Arrays]],
    slots: Sequence[Slot],
    *,
    moves: bool,
    rng: np.random.Generator,
) -> dict[str, Array]:
    """Return the units of all outputs from the values at the points.

    If it ``moves``, two more evaluations at each point show how far relative changes of the inputs move the values.
    """
    found = {slot.name: np.ones(slot.shape) for slot in meter.function.outputs}
    if not moves:
        return found
    sizes = [_sizes(meter, point, values, rng) for point, values in points]
    for slot in slots:
        size = np.max([each[slot.name] for each in sizes], axis=0)
        if are_far_apart(size) and floats.eps(slot.dtype) <= floats.eps(NARROWEST):
            found[slot.name] = 1 / balance(np.ones(slot.shape), size)
    return found


def _sizes(meter: Meter, point: Point, values: Arrays, rng: np.random.Generator) -> Mapping[str, Array]:
    signs = {slot.name: vectors(slot, rng) for slot in meter.function.inputs}
    one, half = ({name: x * (1 + step * signs[name]) for name, x in point.inputs.items()} for step in (STEP, STEP / 2))
    try:
        moved = [meter.values(replace(point, inputs=inputs)) for inputs in (one, half)]
    except ModelFailed:
        return {name: np.abs(y) for name, y in values.items()}
    return {name: _size(y, moved[0][name] - y, moved[1][name] - y) for name, y in values.items()}


def _size(y: Array, change: Array, of_half: Array) -> Array:
    """Return the size of each value, from its changes at the whole and at half the step.

    A value whose change is 0 or noise has its own size, or the smallest of the others if that is larger.
    """
    size = np.fmax(np.abs(y), np.abs(change) / STEP)
    moves = (np.abs(change - 2 * of_half) <= SMOOTH * np.abs(change)) & (np.abs(change) > STEP**2 * np.abs(y))
    return np.where(moves, size, np.fmax(np.abs(y), np.min(size, where=moves, initial=np.inf))) if moves.any() else size
