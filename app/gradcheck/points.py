"""Draw the points of a check: random ones, many that are spread over the domain, and special ones."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from app.autodiff.draws import THREES, Dimensions, draw, in_slot, shape_of
from ops import BOOL, FLOATS, Array, Input, Op

SCALAR: Dimensions = {"...": ()}
# Numbers outside of the default domain that are tried more closely.
FAR_OUT = (-20.0, -10.0, -5.0, 5.0, 10.0, 20.0)
# How near numbers come to a pole, a kink or an end of a domain, as fractions of the domain.
NEAR = (2.0**-6, 2.0**-8, 2.0**-11, 2.0**-15, 2.0**-20)
# Further special numbers of elementwise ops, and numbers outside of the default domain.
ELEMENTWISE, OUTSIDE = (1.0, -1.0), (-40.0, -10.0, 10.0, 40.0)

# How often a special number is in a row; and the most points of an elementwise op where all inputs have special ones.
TWICE, COMBINED = 2, 48
# How far numbers are moved off those of ``Op.sample``, relative to their size.
OFF = 2.0**-10


def room(op: Op, name: str, x: Array) -> Array:
    """Return how far each number of an input is from the ends of its domain; infinite outside, or without a domain."""
    for slot in op.inputs:
        if slot.name == name and slot.has_domain:
            nearest = np.minimum(x - slot.domain[0], slot.domain[1] - x)
            return np.where(nearest >= 0, nearest, np.inf)
    return np.full(np.shape(x), np.inf)


def sides(op: Op, name: str, x: Array) -> Array:
    """Return 1 where a number of an input is at the lower end of its domain, -1 at the upper end, 0 elsewhere."""
    for slot in op.inputs:
        if slot.name == name and slot.has_domain and slot.domain[0] < slot.domain[1]:
            return np.where(x == slot.domain[0], 1.0, np.where(x == slot.domain[1], -1.0, 0.0))
    return np.zeros(np.shape(x))


def reflected(op: Op, name: str, x: Array, moved: Array) -> Array:
    """Return ``moved``, but numbers that have left the domain from its very end x move as far into it."""
    return np.where(sides(op, name, x) * (moved - x) < 0, 2 * x - moved, moved).astype(moved.dtype)


def size_of_numbers(op: Op, name: str) -> float:
    """Return the size of the numbers of an input: a sixth of its domain, which is 1 for the default one.

    A step from 0, and a distance from 0, have no other size. For a cotangent it is 1.
    """
    slot = next((slot for slot in op.inputs if slot.name == name), None)
    width = np.inf if slot is None else slot.domain[1] - slot.domain[0]
    return width / 6 if np.isfinite(width) and width > 0 else 1.0


def uneven_dimensions(op: Op) -> Dimensions:
    """Return a size for each symbol of the inputs, all different, because an op may confuse sizes that are equal."""
    symbols = dict.fromkeys(size for slot in op.inputs for size in slot.shape if isinstance(size, str))
    return {symbol: (size,) for symbol, size in zip(symbols, (2, *range(4, 4 + len(symbols))), strict=False)}


def latin_hypercube(
    op: Op, attrs: Mapping[str, Any], dtype: str, rng: np.random.Generator, count: int
) -> list[dict[str, Array]]:
    """Draw ``count`` valid points; the numbers at one index of an input are stratified over its domain.

    Those of an elementwise op are single numbers, unless ``Op.sample`` draws more.
    """
    dimensions = SCALAR if op.batching_for(op.attrs.model_validate(attrs)) == "elementwise" else THREES
    if op.sample is not None:
        return [draw(op, attrs, dtype, rng, dimensions) for _ in range(count)]
    columns: dict[str, Array] = {}
    for slot in op.inputs:
        shape = shape_of(slot, dimensions)
        strata = rng.permuted(np.broadcast_to(np.arange(count), (*shape, count)), axis=-1)
        fractions = np.moveaxis((strata + rng.uniform(size=strata.shape)) / count, -1, 0)
        columns[slot.name] = in_slot(op, slot, dtype, rng, fractions)
    return [{name: column[i] for name, column in columns.items()} for i in range(count)]


def special(op: Op, attrs: Mapping[str, Any], dtype: str, rng: np.random.Generator) -> Iterator[dict[str, Array]]:
    """Yield points at 0, -0, ties, equal rows, the ends of the domain, and the kinks.

    Inputs that have no such number are drawn. The op may reject some of these points.
    """
    slots = {slot.name: slot for slot in op.inputs}
    is_elementwise = op.batching_for(op.attrs.model_validate(attrs)) == "elementwise"
    choices = {
        slot.name: _special_numbers(op, slot, is_elementwise=is_elementwise)
        for slot in op.inputs
        if op.dtype_of(slot, dtype) in FLOATS
    }
    for name, numbers in choices.items():
        for number in numbers:
            yield {**draw(op, attrs, dtype, rng), name: np.full(shape_of(slots[name], THREES), number)}
    for _ in range(3):
        yield {slot.name: _from_few(op, slot, dtype, rng, choices.get(slot.name, ())) for slot in op.inputs}
    yield from _combined(op, attrs, dtype, rng, choices) if is_elementwise else _some(op, attrs, dtype, rng, choices)
    yield from _equal_inputs(op, draw(op, attrs, dtype, rng), rng)
    rows = draw(op, attrs, dtype, rng)
    yield {name: np.broadcast_to(x[:1], x.shape).copy() if x.ndim > 1 else x for name, x in rows.items()}


def _some(
    op: Op, attrs: Mapping[str, Any], dtype: str, rng: np.random.Generator, choices: Mapping[str, Sequence[float]]
) -> Iterator[dict[str, Array]]:
    """Yield points with one special number twice in each row, in each column, and so on; and one with 0 everywhere."""
    zeros = [name for name, numbers in choices.items() if 0 in numbers]
    for name, numbers in choices.items():
        shape = draw(op, attrs, dtype, rng)[name].shape
        for axis in range(len(shape)) if numbers else ():
            inputs = draw(op, attrs, dtype, rng)
            x = np.array(inputs[name], np.float64)
            if x.shape == shape and shape[axis] > TWICE:
                ranks = np.argsort(rng.uniform(size=shape), axis=axis).argsort(axis=axis)
                yield {**inputs, name: np.where(ranks < TWICE, 0.0 if name in zeros else rng.choice(numbers), x)}
    if len(zeros) > 1:
        inputs = draw(op, attrs, dtype, rng)
        yield {**inputs, **{name: np.zeros_like(inputs[name]) for name in zeros}}


def _combined(
    op: Op, attrs: Mapping[str, Any], dtype: str, rng: np.random.Generator, choices: Mapping[str, Sequence[float]]
) -> Iterator[dict[str, Array]]:
    """Yield points of an elementwise op where all inputs have special numbers: all combinations, or some."""
    every = list(itertools.product(*choices.values())) if len(choices) > 1 else []
    slots = {slot.name: slot for slot in op.inputs}
    drawn = sorted(map(int, rng.permutation(len(every))), key=lambda i: len(set(every[i])))  # equal numbers first
    for i in drawn[:COMBINED]:
        numbers = zip(choices, every[i], strict=True)
        yield {
            **draw(op, attrs, dtype, rng, THREES),
            **{name: np.full(shape_of(slots[name], THREES), number) for name, number in numbers},
        }


def _equal_inputs(op: Op, drawn: Mapping[str, Array], rng: np.random.Generator) -> Iterator[dict[str, Array]]:
    """Yield a point where all inputs of floats that have the shape of the first are equal, within their domains."""
    floats = [slot for slot in op.inputs if drawn[slot.name].dtype.kind not in "iub"]
    x = drawn[floats[0].name]
    equal = [slot for slot in floats if drawn[slot.name].shape == x.shape]
    domains = [slot.domain for slot in equal if slot.has_domain]
    low, high = max((low for low, _ in domains), default=-np.inf), min((high for _, high in domains), default=np.inf)
    if not ((x >= low) & (x <= high)).all():
        if low >= high:
            return
        x = rng.uniform(low, high, x.shape) if np.isfinite(high - low) else np.clip(x, low, high)
    yield {**drawn, **{slot.name: x for slot in equal}}


def unlike_samples(
    op: Op, attrs: Mapping[str, Any], dtype: str, rng: np.random.Generator
) -> Iterator[dict[str, Array]]:
    """Yield points that ``Op.sample`` may never draw: off symmetric matrices, and at equal and at negative integers.

    A gradient that is right for symmetric matrices, or for different indices, may be wrong elsewhere. The op may reject
    these points.
    """
    inputs = draw(op, attrs, dtype, rng)
    kinds = {slot.name: op.dtype_of(slot, dtype) for slot in op.inputs}
    floats = {name: x for name, x in inputs.items() if kinds[name] in FLOATS}
    integers = {name: x for name, x in inputs.items() if x.size and kinds[name] not in (*FLOATS, BOOL)}
    yield {**inputs, **{name: x * (1 + OFF * rng.uniform(-1, 1, x.shape)) for name, x in floats.items()}}
    if integers:
        yield {**inputs, **{name: np.full_like(x, rng.choice(np.ravel(x))) for name, x in integers.items()}}
        yield {**inputs, **{name: -1 - x for name, x in integers.items()}}


def near_edges(op: Op, attrs: Mapping[str, Any], dtype: str, rng: np.random.Generator) -> Iterator[dict[str, Array]]:
    """Yield points with one number near a pole, a kink or an end of its domain: nearer than random numbers come.

    If an input declares no domain, numbers outside of the default one are tried as well. An op that draws its points
    itself (``Op.sample``) gets none. The op may reject some of these points.
    """
    is_elementwise = op.batching_for(op.attrs.model_validate(attrs)) == "elementwise"
    for slot in () if op.sample is not None else op.inputs:
        if op.dtype_of(slot, dtype) not in FLOATS:
            continue
        for number in (*_near(slot), *(() if slot.has_domain else FAR_OUT)):
            inputs = draw(op, attrs, dtype, rng, SCALAR if is_elementwise else THREES)
            x = np.array(inputs[slot.name], np.float64)
            if x.size:
                x.reshape(-1)[rng.integers(x.size)] = number
                yield {**inputs, slot.name: x}


def edges(slot: Input) -> tuple[float, ...]:
    """Return the kinks and poles of an input, and the ends of the domain that it declares."""
    return (*slot.kinks, *slot.poles, *(slot.domain if slot.has_domain else ()))


def _near(slot: Input) -> list[float]:
    """Return numbers on both sides of the edges of an input, within its domain."""
    low, high = slot.domain
    ways = [side * part * (high - low) for part in NEAR for side in (-1, 1)]
    numbers = dict.fromkeys(edge + way for edge in dict.fromkeys(edges(slot)) for way in ways)
    return [number for number in numbers if low < number < high and number not in edges(slot)]


def _special_numbers(op: Op, slot: Input, *, is_elementwise: bool) -> list[float]:
    """Return the special numbers of an input, within its domain.

    Those of an elementwise op take no time: 1 and -1, where powers and logarithms are special, and, if no domain is
    declared, some beyond the default one.
    """
    low, high = slot.domain
    numbers = [0.0, -0.0, low, high, *slot.kinks]
    outside: tuple[float, ...] = ()
    if is_elementwise:
        numbers += ELEMENTWISE
        outside = () if slot.has_domain or op.sample is not None else OUTSIDE
    numbers = [*(number for number in numbers if low <= number <= high), *outside]
    distinct = {(number, np.signbit(number)): number for number in numbers}
    return [number for number in distinct.values() if number not in slot.poles]


def _from_few(op: Op, slot: Input, dtype: str, rng: np.random.Generator, numbers: Sequence[float]) -> Array:
    """Draw an input from two or three numbers, so that some are equal; special numbers are among them."""
    if (parameter := op.parameter(slot.name)) is not None:
        few = rng.choice(np.append(parameter.value, slot.domain), 2)
    else:
        few = in_slot(op, slot, dtype, rng, rng.uniform(size=2))
    some = rng.choice(np.asarray(numbers), 1) if len(numbers) else few[:0]
    return rng.choice(np.concatenate([few, some]), shape_of(slot, THREES))
