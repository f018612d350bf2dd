"""Draw points of complex numbers where functions of them are special: on the axes, at equal sizes, at equal angles.

A number on an axis has either sign of zero in its other part, because functions with a branch cut, such as the square
root and the logarithm, tell the two apart. Cuts lie along the axes, and many end at ±1 or ±1j: numbers are on both
sides of these, and beside the axes. Equal sizes and angles are equal to the last bit.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from app.autodiff.draws import Dimensions, draw
from ops import Array, Input, Op

Special: TypeAlias = Callable[[Input, Array, Array], Array]
"""From an input, turns and the first number of the point to a special number for each turn, as pairs (count, 2)."""

# The numbers of each dimension, and of "...".
COUNT, FREE_COUNT = 4, 8
# Where cuts end.
ENDS = (-1.0, 0.0, 1.0)
# The part that is 0 on an axis: with either sign, and beside it, as a fraction of the domain. A smaller one would
# leave a numeric derivative no digits.
OTHER_PARTS = (0.0, -0.0, 2.0**-10, -(2.0**-10), 2.0**-16, -(2.0**-16))
# Numbers of size 1; factors of the two parts that leave the size exactly as it is; and those that leave the angle.
ON_CIRCLE = np.array([(0.6, 0.8), (-0.6, 0.8), (-0.8, -0.6), (0.8, -0.6)])
SIGNS = np.array([(1.0, 1.0), (-1.0, 1.0), (-1.0, -1.0), (1.0, -1.0)])
DOUBLINGS = np.array([(1.0, 1.0), (0.5, 0.5), (0.25, 0.25), (2.0, 2.0)])


def complex_points(
    op: Op, attrs: Mapping[str, Any], dtype: str, rng: np.random.Generator
) -> Iterator[dict[str, Array]]:
    """Yield points within the domains where all numbers of one complex input, or of all such inputs, are special.

    The numbers of other inputs are drawn. The op may reject some of these points.
    """
    slots = tuple(slot for slot in op.inputs if slot.is_complex)
    groups = dict.fromkeys([*((slot,) for slot in slots), slots]) if slots else ()
    symbols = {size: (COUNT,) for slot in op.inputs for size in slot.shape if isinstance(size, str)}
    dimensions: Dimensions = {**symbols, "...": (FREE_COUNT,)}
    for special, group in itertools.product(_specials(rng), groups):
        point = draw(op, attrs, dtype, rng, dimensions)
        shapes = {slot: point[slot.name].shape for slot in group}
        if all(map(math.prod, shapes.values())):
            first = np.asarray(point[slots[0].name], np.float64).reshape(-1, 2)[:1]
            numbers = {
                slot: special(slot, _turns(k, math.prod(shape[:-1])), first)
                for k, (slot, shape) in enumerate(shapes.items())
            }
            if all(map(_is_inside, numbers, numbers.values())):
                yield {**point, **{slot.name: pairs.reshape(shapes[slot]) for slot, pairs in numbers.items()}}


def _specials(rng: np.random.Generator) -> Iterator[Special]:
    def on_axis(axis: int, other: float, slot: Input, turns: Array, first: Array) -> Array:
        del first
        low, high = slot.domain
        ends = np.array([low, *(end for end in ENDS if low < end < high), high])
        i = turns % (len(ends) - 1)
        pairs = np.full((len(turns), 2), other * (high - low) if other else other)
        pairs[:, axis] = ends[i] + np.diff(ends)[i] * rng.uniform(0.125, 0.875, len(turns))
        return pairs

    def on_circle(slot: Input, turns: Array, first: Array) -> Array:
        del slot, first
        return ON_CIRCLE[turns % len(ON_CIRCLE)]

    def multiples(factors: Array, slot: Input, turns: Array, first: Array) -> Array:
        del slot
        return first * factors[turns % len(factors)]

    yield from (partial(on_axis, axis, other) for axis in (0, 1) for other in OTHER_PARTS)
    yield from (on_circle, partial(multiples, SIGNS), partial(multiples, DOUBLINGS))


def _turns(k: int, count: int) -> Array:
    """Return which special number each number of the k-th input is: beside the next one of the first, and so on."""
    i = np.arange(count)
    return i + k * (1 + i // COUNT)


def _is_inside(slot: Input, pairs: Array) -> bool:
    low, high = slot.domain
    return bool(((low <= pairs) & (pairs <= high)).all()) and not np.isin(pairs, slot.poles).any()
