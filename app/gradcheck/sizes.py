"""Draw points of many sizes: a gradient may be wrong at one number, from five on, or without any axis.

Every symbol of an op's shapes takes each of ``SIZES`` once, in its own random order, and ``...`` each of ``AXES``.
Where all of them together would take too long, all but one are small. Some rows are put in order, or have one sign: of
random rows of more than four numbers, few are.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from app.autodiff import draws
from app.autodiff.binding import bind_attrs
from app.autodiff.draws import Dimensions
from app.autodiff.point import Point
from app.errors import Unprocessable
from app.gradcheck.target import Target
from ops import Array, Attrs, Op

# 1, powers of two and their neighbours, and the sizes between the first of them; two more sizes are drawn.
SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65)
DRAWN = 2
AXES = ((), (1,), (2,), (4,), (5,), (17,), (64,), (65,), (1, 1), (3, 2), (1, 5), (2, 3, 5), (5, 1, 2), (3, 4, 2))
EMPTY_AXES = ((0,), (2, 0, 3))
SMALL = (1, 2, 3)
# Sizes of one axis, while all others are small: those around the sizes of blocks, and those from which kernels share
# their work among threads.
BLOCKS = ((127, 128, 129), (255, 256, 257), (511, 512, 513))
LONG = (1025, 4097)
# The most numbers of the inputs of a point, multiply-adds of one forward pass, and points of an op.
MOST_NUMBERS, MOST_COST, MOST_POINTS = 1 << 13, 1 << 21, 48
# How many points an op's own ``sample`` draws, and how many of different sizes are used.
SAMPLES, SAMPLED = 32, 12
# What is done to the numbers of rows, and to how many points with rows of at least so many numbers.
ARRANGEMENTS: Mapping[str, Callable[[Array], Array]] = {
    "ascending": lambda x: np.sort(x, axis=-1),
    "descending": lambda x: -np.sort(-x, axis=-1),
    "positive": np.abs,
    "negative": lambda x: -np.abs(x),
}
ARRANGED, ROW = 3, 5


class Sized(NamedTuple):
    """A point, and its sizes in words, such as ``N = 4, M = 65``."""

    sizes: str
    point: Point


def points(target: Target) -> Iterator[Sized]:
    """Yield points of many sizes, in the widest dtype; those that the op rejects are left out."""
    rng, found = target.rng("many sizes"), set[tuple[tuple[int, ...], ...]]()
    if target.op.sample is not None:
        known = {_shapes(point) for point in target.points}
        for _ in range(SAMPLES):
            with suppress(Unprocessable):
                point = target.bind(draws.draw(target.op, target.attrs, target.widest, rng), target.widest)
                if (shapes := _shapes(point)) not in known | found and len(found) < SAMPLED:
                    found.add(shapes)
                    yield Sized(_words(point), point)
        return
    attrs, with_rows = bind_attrs(target.op, target.attrs), list[Point]()
    for sizes in dimensions(target.op, attrs, rng):
        if point := _drawn(target, sizes, rng):
            found.add(_shapes(point))
            with_rows += [point] * any(x.ndim and x.shape[-1] >= ROW for x in point.inputs.values())
            yield Sized(_words(point), point)
    for i in map(int, rng.permutation(len(with_rows))[:ARRANGED]):
        yield from _arranged(target, with_rows[i])
    # An op may accept only sizes that are equal.
    symbols = _symbols(target.op, attrs)
    largest = max((size for shapes in found for shape in shapes for size in shape), default=0)
    if symbols and largest <= max(SMALL):
        for size in SIZES:
            if point := _drawn(target, dict.fromkeys(symbols, (size,)), rng):
                yield Sized(_words(point), point)


def _arranged(target: Target, point: Point) -> Iterator[Sized]:
    """Yield the point with its floats in each arrangement; an input stays as it is where it would leave its domain."""
    slots = [slot for slot in target.op.inputs if point.inputs[slot.name].dtype.kind not in "iub"]
    for words, arrange in ARRANGEMENTS.items():
        inputs = dict(point.inputs)
        for slot in slots:
            x, (low, high) = inputs[slot.name], slot.domain
            if x.ndim and ((low <= (arranged := arrange(x))) & (arranged <= high)).all():
                inputs[slot.name] = arranged
        with suppress(Unprocessable):
            yield Sized(f"{_words(point)}, {words}", target.bind(inputs, target.widest))


def long_points(target: Target, lengths: Sequence[int]) -> Iterator[Sized]:
    """Yield points with one long axis, the shortest first; all others are small, or equal if the op asks for that."""
    rng, attrs = target.rng("long"), bind_attrs(target.op, target.attrs)
    symbols = [] if target.op.sample is not None else _symbols(target.op, attrs)
    for length in lengths:
        long: list[Dimensions] = [
            {symbol: axes} for symbol in symbols for axes in ((length,), (2, length))[: 1 + (symbol == "...")]
        ]
        points = [point for each in long if (point := _beside_small(target, symbols, each, rng))]
        if not points and len(symbols) > 1:
            points = [point for point in [_drawn(target, dict.fromkeys(symbols, (length,)), rng)] if point]
        yield from (Sized(_words(point), point) for point in points)


def _beside_small(target: Target, symbols: list[str], sizes: Dimensions, rng: np.random.Generator) -> Point | None:
    """Return a point of these sizes where all others are small, or 1 if that would be too many numbers."""
    small: Dimensions = {symbol: (int(rng.choice(SMALL)),) for symbol in symbols}
    is_much = _numbers(target.op, {**small, **sizes}) > MOST_NUMBERS
    return _drawn(target, {**(dict.fromkeys(symbols, (1,)) if is_much else small), **sizes}, rng)


def dimensions(op: Op, attrs: Attrs, rng: np.random.Generator) -> Iterator[Dimensions]:
    """Yield sizes of all symbols of an op's inputs; integer attributes that are symbols keep their values."""
    known: Dimensions = {name: (value,) for name, value in attrs.static().items() if isinstance(value, int)}
    symbols = _symbols(op, attrs)
    columns = {symbol: _column(symbol, rng) for symbol in symbols}
    count, left = max(map(len, columns.values()), default=0), list[tuple[str, tuple[int, ...]]]()
    found = list[Dimensions]()
    for i in range(count):
        chosen = {symbol: column[i % len(column)] for symbol, column in columns.items()}
        while _numbers(op, {**known, **chosen}) > MOST_NUMBERS:
            large = rng.permutation([symbol for symbol in symbols if math.prod(chosen[symbol]) > max(SMALL)])
            # One of them keeps its size.
            if not large[1:].size:
                break
            symbol = str(large[0])
            left.append((symbol, chosen[symbol]))
            chosen[symbol] = (int(rng.choice(SMALL)),)
        found.append(chosen)
    left += [(symbol, axes) for symbol in symbols for axes in (EMPTY_AXES if symbol == "..." else ((0,),))]
    for symbol, axes in left:
        small: Dimensions = {other: (int(rng.choice(SMALL)),) for other in symbols}
        found.append({**small, symbol: axes})
    for sizes in found[:MOST_POINTS]:
        if _numbers(op, every := {**known, **sizes}) <= MOST_NUMBERS:
            yield every


def _column(symbol: str, rng: np.random.Generator) -> list[tuple[int, ...]]:
    """Return all sizes of a symbol in a random order."""
    drawn = [(int(size),) for size in rng.integers(6, 64, DRAWN)]
    axes = [*AXES, *drawn] if symbol == "..." else [*((size,) for size in SIZES), *drawn]
    return [axes[i] for i in rng.permutation(len(axes))]


def _symbols(op: Op, attrs: Attrs) -> list[str]:
    """Return the symbols of the inputs whose sizes vary."""
    every = dict.fromkeys(size for slot in op.inputs for size in slot.shape if isinstance(size, str))
    return [symbol for symbol in every if symbol not in attrs.static()]


def _numbers(op: Op, sizes: Dimensions) -> int:
    return sum(math.prod(draws.shape_of(slot, sizes)) for slot in op.inputs)


def _drawn(target: Target, sizes: Dimensions, rng: np.random.Generator) -> Point | None:
    """Return a point of these sizes, ``None`` if the op rejects it, or if it would take long."""
    if _numbers(target.op, sizes) > MOST_NUMBERS:
        return None
    with suppress(Unprocessable):
        inputs = draws.draw_from_domains(target.op, target.widest, rng, sizes)
        point = target.bind(inputs, target.widest)
        return point if point.cost <= MOST_COST else None
    return None


def _shapes(point: Point) -> tuple[tuple[int, ...], ...]:
    return tuple(x.shape for x in point.inputs.values())


def _words(point: Point) -> str:
    """Return the sizes of the symbols, or the shapes of the inputs if their ranks vary, or no size does."""
    sizes = {name: n for name, n in point.dims.items() if name not in point.spec.sizes}
    if not sizes or "..." in sizes:
        return ", ".join(f"{name} of shape {list(x.shape)}" for name, x in point.inputs.items())
    return ", ".join(f"{name} = {n}" for name, n in sizes.items())
