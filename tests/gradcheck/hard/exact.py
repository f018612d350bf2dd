"""Right ops on which a careless checker raises false alarms, and their true derivatives in 60 digits.

``true_values`` decides whether an alarm is deserved: whether the op's own answer is off from the true one by more than
rounding. ``off`` measures that: rounding moves each input a little, and the true answer with it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
from mpmath import mp

from app.gradcheck import rounding
from app.runtime.modes import Key
from app.tensors.dtypes import DTYPES
from ops import Array, Function, Op

Numbers: TypeAlias = list[Any]

DIGITS = 60
KINDS = ("outputs", "gradients", "products", "slots")
NUDGES = (1.0, -1.0, 1.0, -0.5, 0.5, -0.5)


@dataclass(frozen=True)
class Hard:
    """A right op, and its forward on mpmath numbers.

    ``exact`` takes the inputs by position and the attributes by keyword: numbers for an elementwise op, else nested
    lists. It returns y, or a tuple for several outputs. It is ``None`` if there is no such function.
    """

    op: Op
    exact: Function | None = None


def collected(*hards: Hard) -> dict[str, Hard]:
    """Return the ops by name. Raises ``ValueError`` if two have the same name."""
    named = {hard.op.name: hard for hard in hards}
    if len(named) < len(hards):
        names = [hard.op.name for hard in hards]
        raise ValueError(f"two ops are named {next(name for name in names if names.count(name) > 1)!r}")
    return named


@dataclass(frozen=True)
class Where:
    """A point of an op, and its directions by output and by input, as in ``app.gradcheck.sample.Sample``."""

    inputs: Mapping[str, Array]
    cotangents: Mapping[str, Array]
    vectors: Mapping[str, Array]
    attrs: Mapping[str, Any]


def true_values(hard: Hard, where: Where, kinds: Sequence[str] = KINDS) -> dict[Key, Array]:
    """Return the outputs, the gradients and the second order, or some of these, as arrays of mpmath numbers.

    The keys are those of ``Sample.values``: outputs, and slots at dy, by output; gradients, and products at x, by
    input.
    """
    if hard.op.batching != "elementwise":
        return _at(hard, where, kinds)
    shape = next(iter(where.inputs.values())).shape
    places = [_at(hard, _place(where, i), kinds) for i in range(int(np.prod(shape)))]
    return {key: np.array([place[key] for place in places], object).reshape(shape) for key in places[0]}


def true_gradient(
    hard: Hard, inputs: Mapping[str, Any], cotangents: Mapping[str, Any], attrs: Mapping[str, Any] | None = None
) -> dict[str, Array]:
    """Return dx by input, as arrays of mpmath numbers."""
    points, dys = ({name: np.asarray(x) for name, x in named.items()} for named in (inputs, cotangents))
    live = {slot.name: np.zeros(points[slot.name].shape) for slot in hard.op.inputs if slot.differentiable}
    values = true_values(hard, Where(points, dys, live, attrs or {}), ("gradients",))
    return {name: value for (_, name), value in values.items()}


def off(
    hard: Hard, where: Where, values: Mapping[Key, Array], dtype: str, kinds: Sequence[str] = KINDS
) -> dict[Key, Array]:
    """Return how far values of some kinds are off from the true ones, in units of what rounding explains.

    That is the rounding of the true value, the smallest normal number, and the change of the true value if each input
    changes by one rounding, which is measured with random signs.
    """
    unit, rng = rounding.eps(dtype), np.random.default_rng(0)
    true = true_values(hard, where, kinds)
    moved = [true_values(hard, _nudged(where, size * unit, rng), kinds) for size in NUDGES]
    return {
        key: _ratio(values[key], true[key], [other[key] for other in moved], dtype) for key in true if key in values
    }


def _ratio(value: Array, true: Array, moved: Sequence[Array], dtype: str) -> Array:
    high, tiny = min(DTYPES[dtype].high, float(np.finfo(np.float64).max)), rounding.tiny(dtype)
    ratios: list[float] = []
    for i, (is_, should) in enumerate(zip(np.ravel(value), np.ravel(true), strict=True)):
        number = float(is_)
        if abs(should) > high:
            ratios.append(0.0 if np.isinf(number) or abs(number) > high / 2 else np.inf)
            continue
        if not np.isfinite(number):
            ratios.append(np.inf)
            continue
        spread = max(abs(np.ravel(other)[i] - should) for other in moved)
        ratios.append(float(abs(mp.mpf(number) - should) / (rounding.eps(dtype) * abs(should) + spread + tiny)))
    return np.array(ratios).reshape(np.shape(value))


def _nudged(where: Where, unit: float, rng: np.random.Generator) -> Where:
    moved = {
        name: np.array([mp.mpf(float(v)) * (1 + unit * s) for v, s in _signed(x, rng)], object).reshape(x.shape)
        if name in where.vectors
        else x
        for name, x in where.inputs.items()
    }
    return Where(moved, where.cotangents, where.vectors, where.attrs)


def _signed(x: Array, rng: np.random.Generator) -> list[tuple[Any, int]]:
    return [(value, int(sign)) for value, sign in zip(np.ravel(x), rng.choice([-1, 1], x.size), strict=True)]


def _place(where: Where, i: int) -> Where:
    """Return one place of an elementwise op's point, as arrays of shape ()."""

    def part(named: Mapping[str, Array]) -> dict[str, Array]:
        return {name: np.array(np.ravel(x)[i], x.dtype) for name, x in named.items()}

    return Where(part(where.inputs), part(where.cotangents), part(where.vectors), where.attrs)


def _at(hard: Hard, where: Where, kinds: Sequence[str]) -> dict[Key, Array]:
    with mp.workdps(DIGITS):
        point = _Point(hard, where)
        return {key: value for kind in kinds for key, value in getattr(point, kind)().items()}


class _Point:
    """A function of a flat list of numbers, those that can be moved, to a flat list of outputs."""

    def __init__(self, hard: Hard, where: Where) -> None:
        assert hard.exact is not None
        self.exact: Callable[..., Any] = hard.exact
        self.where, self.live = where, list(where.vectors)
        self.names = [slot.name for slot in hard.op.outputs]
        self.at: Numbers = [_number(v) for name in self.live for v in np.ravel(where.inputs[name])]
        self.v: Numbers = [_number(v) for name in self.live for v in np.ravel(where.vectors[name])]

    def outputs(self) -> dict[Key, Array]:
        return {("outputs", name): y for name, y in self.by_output(self.at).items()}

    def gradients(self) -> dict[Key, Array]:
        gradients = [self.slope(self.weighted, self.at, j)[0] for j in range(len(self.at))]
        return {("gradients", name): x for name, x in self.by_input(gradients).items()}

    def products(self) -> dict[Key, Array]:
        moved = any(v != 0 for v in self.v)
        products = [self.product(j) if moved else mp.mpf(0) for j in range(len(self.at))]
        return {("products", name): x for name, x in self.by_input(products).items()}

    def slots(self) -> dict[Key, Array]:
        slots = self.summed(lambda k: self.slope(self.flat_outputs, self.at, k))
        result: dict[Key, Array] = {}
        start = 0
        for name, y in self.by_output(self.at).items():
            if name in self.where.cotangents:
                result["slots", name] = np.array(slots[start : start + y.size], object).reshape(y.shape)
            start += y.size
        return result

    def by_output(self, numbers: Numbers) -> dict[str, Array]:
        named = self.by_input(numbers)
        inputs = [named.get(name, x) for name, x in self.where.inputs.items()]
        result: Any = self.exact(*(x.tolist() for x in inputs), **self.where.attrs)
        ys: list[Any] = list(cast(Any, result)) if isinstance(result, tuple) else [result]
        return {name: np.array(y, object) for name, y in zip(self.names, ys, strict=True)}

    def flat_outputs(self, numbers: Numbers) -> Numbers:
        return [value for y in self.by_output(numbers).values() for value in np.ravel(y)]

    def weighted(self, numbers: Numbers) -> Numbers:
        ys, dys = self.by_output(numbers), self.where.cotangents
        pairs = [(y, dy) for name in dys for y, dy in zip(np.ravel(ys[name]), np.ravel(dys[name]), strict=True)]
        return [sum((y * _number(dy) for y, dy in pairs), mp.mpf(0))]

    def product(self, j: int) -> Any:
        def gradient(numbers: Numbers) -> Numbers:
            return self.slope(self.weighted, numbers, j)

        return self.summed(lambda k: self.slope(gradient, self.at, k))[0]

    def summed(self, slope: Callable[[int], Numbers]) -> Numbers:
        """Return Σ v[k] slope(k)."""
        parts = [[self.v[k] * s for s in slope(k)] for k in range(len(self.at))]
        return [sum(column, mp.mpf(0)) for column in zip(*parts, strict=True)]

    def slope(self, function: Callable[[Numbers], Numbers], at: Numbers, k: int) -> Numbers:
        """Return the derivatives by number k, with a step that is relative to the number."""
        scale = abs(self.at[k]) or mp.mpf(1)

        def moved(t: Any) -> Any:
            return mp.matrix(function([*at[:k], at[k] + t * scale, *at[k + 1 :]]))

        return [value / scale for value in _diff(moved)]

    def by_input(self, numbers: Numbers) -> dict[str, Array]:
        named: dict[str, Array] = {}
        start = 0
        for name in self.live:
            x = self.where.inputs[name]
            named[name] = np.array(numbers[start : start + x.size], object).reshape(x.shape)
            start += x.size
        return named


def _diff(function: Callable[[Any], Any]) -> Any:
    """Return the derivative at 0 of a function to vectors, by a central difference that is good to half the digits."""
    digits = mp.dps
    with mp.workdps(digits + digits // 2 + 10):
        h = mp.mpf(10) ** -(digits // 2)
        return (function(h) - function(-h)) / (2 * h)


def _number(value: Any) -> Any:
    return value if isinstance(value, mp.mpf) else mp.mpf(float(value))
