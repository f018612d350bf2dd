"""A point of a function: values, gradients at random cotangents, and how far each may be off."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pullback.dtypes import Array
from pullback.errors import BadAnswer, ModelFailed
from pullback.gradcheck import floats, noise
from pullback.gradcheck.function import Arrays, Point, Slot
from pullback.gradcheck.meter import Meter
from pullback.gradcheck.scales import are_far_apart

Pair = tuple[str, str]
"""An output and an input."""

ASSUMED = 2.0**-20
"""The relative error of values and derivatives where the noise is not measured: 1e-6, a common tolerance of solvers."""
NOISES = 8.0
"""A bar covers this many times the noise."""
RATIO = 20
"""Bars are those of one vjp; in properties three of them, at cotangents up to four times as large, may be off."""
ROUNDINGS, FEW_ROUNDINGS, NARROW = 64, 8, 2.0**-12
"""The roundings of its largest number that a derivative may be off, besides its noise; fewer of a unit that is narrow:
64 of bfloat16 are half of the number.
"""
UNITS = 4.0
"""How much larger the largest number of a gradient counts in the units of the inputs, which are within this factor."""
FIRST_STEP = 0.25
"""The first step, as a fraction of the number that it moves."""
FAR = 2.0**-3
"""How far the points are that show the tolerance of a solver, as a fraction of the numbers."""
NARROWED, WIDE_ROUNDING = 2.0**-28, 2.0**-48
"""The least noise of a number that is rounded to float32, and the most of one in float64, relative to it."""
WIDEST_UNIT = 2.0**-6
"""The largest relative error of values that is taken for noise."""


class PointRefused(BadAnswer):
    """The function has no finite values at a point."""


@dataclass(frozen=True)
class Sample:
    """A point with the function's values and gradients there.

    ``noise`` is the standard deviation of each number of the values, by output, and ``bars`` are the errors of the
    gradients. ``unit`` is the relative error of values, and ``level`` the largest noise, relative to the largest number
    of its value or gradient. ``sizes`` are those of each number of the gradients where they are far apart, else ones.
    """

    point: Point
    inputs: Sequence[Slot]
    outputs: Sequence[Slot]
    values: Mapping[str, Array]
    cotangents: Mapping[str, Array]
    gradients: Mapping[Pair, Array]
    noise: Mapping[str, Array]
    bars: Mapping[Pair, Array]
    unit: float
    level: float = 0.0
    sizes: Mapping[Pair, Array] = field(default_factory=dict[Pair, Array])

    def moved(self, by: Mapping[str, Array]) -> Point:
        """Return the point with some inputs moved."""
        moved = {name: self.point.inputs[name] + step for name, step in by.items()}
        return replace(self.point, inputs={**self.point.inputs, **moved})

    def size_of_sum(self, output: str) -> float:
        """Return the sum of the sizes of the numbers of an output, weighted with its cotangent."""
        return float(np.sum(np.abs(self.cotangents[output] * self.values[output])))

    def largest_at(self, pair: Pair) -> Array:
        """Return the largest number of a gradient, at each number: in the units of the inputs, if that is less."""
        dx, step = np.abs(self.gradients[pair]), first_steps(self.point.inputs[pair[1]])
        return np.fmin(largest_of(dx), UNITS * largest_of(dx * step) / step)

    def size_of(self, pair: Pair) -> Array:
        """Return the size of each number of a gradient: that of the largest one, unless they are far apart."""
        size = self.sizes[pair]
        return size if are_far_apart(size) else self.largest_at(pair)

    def terms(self, pair: Pair) -> Array:
        """Return how large the terms may be of each number of a gradient, of which rounding alone may be left.

        It is at least the size of the weighted output, for a change of the number by as much as itself.
        """
        by_values = self.size_of_sum(pair[0]) * FIRST_STEP / first_steps(self.point.inputs[pair[1]])
        return np.fmax(by_values, largest_of(self.gradients[pair]))

    def size_in(self, name: str) -> Array:
        """Return the sizes of the gradients in an input, of which the largest counts."""
        return np.max([size for pair, size in self.sizes.items() if pair[1] == name], axis=0)

    def bar(self, pair: Pair, noise: Array) -> Array:
        """Return the error of each number of a gradient with this noise, of which few draws may show too little."""
        size = self.size_of(pair)
        with np.errstate(invalid="ignore", divide="ignore"):
            typical = np.nan_to_num(np.median(np.where(size > 0, noise / size, 0.0))) * size
        return NOISES * np.fmax(noise, typical) + rounding(self.unit) * size

    def relative_bar(self, pair: Pair) -> float:
        """Return the error of a gradient relative to its largest number."""
        largest = float(np.abs(self.gradients[pair]).max(initial=0.0))
        bar = float(self.bars[pair].max(initial=0.0))
        return bar / largest if largest > 0 and np.isfinite(largest) else ASSUMED


def gradients(meter: Meter, point: Point, cotangents: Mapping[str, Array], inputs: Sequence[Slot]) -> dict[Pair, Array]:
    """Return the gradient of each output with respect to each input."""
    names = [slot.name for slot in inputs]
    return {
        (output, name): dx
        for output, dy in cotangents.items()
        for name, dx in meter.vjp(point, output, dy, names).items()
    }


def values_at(meter: Meter, point: Point) -> Arrays:
    """Return the values at a point. Raises ``PointRefused`` if it has none."""
    try:
        values = meter.values(point)
    except BadAnswer as error:
        raise PointRefused(f"{error}; if the function is right, give a point that it accepts with --inputs") from error
    for name, y in values.items():
        if not np.isfinite(y).all():
            raise PointRefused(f"{name}: expected finite values, got NaN or an infinity: give a point with --inputs")
    return values


def take(
    meter: Meter,
    point: Point,
    values: Arrays,
    slots: tuple[Sequence[Slot], Sequence[Slot]],
    rng: np.random.Generator,
    *,
    measures_noise: bool,
    cotangents: Arrays | None = None,
) -> Sample:
    """Evaluate the gradients at a point that has these values, at random ``cotangents`` if there are none.

    Raises ``BadAnswer`` if it has none.
    """
    inputs, outputs = slots
    if cotangents is None:
        cotangents = {slot.name: directions(slot, np.ones(slot.shape), rng) for slot in outputs}
    found = gradients(meter, point, cotangents, inputs)
    eps = max(floats.eps(slot.dtype) for slot in (*inputs, *outputs))
    sizes = {pair: np.ones(dx.shape) for pair, dx in found.items()}
    sample = Sample(point, inputs, outputs, values, cotangents, found, {}, {}, eps, sizes=sizes)
    if measures_noise:
        return _with_noise(meter, sample, rng)
    unit = max(eps, ASSUMED)
    bars = {pair: unit * sample.largest_at(pair) for pair in found}
    return replace(sample, noise={name: np.zeros_like(y) for name, y in values.items()}, bars=bars, unit=unit)


def _with_noise(meter: Meter, sample: Sample, rng: np.random.Generator) -> Sample:
    """Return the sample with the noise that values and gradients show at points nearby, and at points further apart."""
    dtypes = {slot.name: slot.dtype for slot in sample.inputs}
    leaves = {name: sample.point.inputs[name].astype(floats.holding(dtype)) for name, dtype in dtypes.items()}
    at = {(name, ""): y for name, y in sample.values.items()} | dict(sample.gradients)

    # The squares of huge numbers overflow, and those of tiny ones vanish.
    sizes = {key: 2.0 ** np.frexp(largest_of(value))[1] for key, value in at.items()}
    at = {key: value / sizes[key] for key, value in at.items()}

    def results(moved: Mapping[str, Array]) -> dict[Pair, Array]:
        inputs = {name: floats.rounded(x.astype(np.float64), dtypes[name]) for name, x in moved.items()}
        point = replace(sample.point, inputs={**sample.point.inputs, **inputs})
        try:
            values = {(name, ""): y for name, y in meter.values(point).items()}
            found = values | gradients(meter, point, sample.cotangents, sample.inputs)
            return {key: value / sizes[key] for key, value in found.items()}
        except ModelFailed:
            # Nearby, the function's domain may end.
            return {key: np.full_like(value, np.nan) for key, value in at.items()}

    units = {name: floats.eps(dtype) for name, dtype in dtypes.items()}
    moved = list(map(results, noise.perturbations(leaves, units, rng)))
    near = noise.measure(moved, at, may_be_narrower=False)
    if meter.function.tolerance < NARROWED:
        tiny = noise.measure([*moved[: 2 * noise.DRAWS], *[at] * (len(noise.NODES) - 1)], at, may_be_narrower=False)
        near = {key: _without_narrowing(near[key], tiny[key], at[key]) for key in at}
    slopes = {slot.name: FAR * directions(slot, np.ones(slot.shape), rng) for slot in sample.inputs}
    line = [results(noise.scaled(leaves, slopes, float(t))) if t else at for t in noise.NODES]
    noises = {
        key: np.fmax(near[key], _of_solver(np.stack([each[key] for each in line]), meter.function.tolerance))
        for key in at
    }
    levels = (largest_of(noises[key]) / size for key, value in at.items() if (size := largest_of(value)))
    # A result that is nothing but rounding, as the gradient in what a normalisation takes away, says nothing of others.
    level = max((each for each in levels if each < WIDEST_UNIT), default=0.0)
    level = max(level, _nonlinearity(meter, sample, rng))
    noises = {key: size * sizes[key] for key, size in noises.items()}
    sample = replace(sample, noise={name: noises[name, ""] for name in sample.values}, level=level)
    sizes = {
        pair: _sizes(np.stack([each[pair] for each in line]) * sizes[pair], noises[pair]) for pair in sample.gradients
    }
    sample = replace(
        sample, sizes={pair: size if are_far_apart(size) else np.ones(size.shape) for pair, size in sizes.items()}
    )
    return replace(sample, bars={pair: sample.bar(pair, noises[pair]) for pair in sample.gradients})


def with_level(sample: Sample, level: float) -> Sample:
    """Return the sample with noise of at least ``level`` times the largest number of each value and gradient.

    Noise that one line shows, another may miss; so the level is the largest of all points, values and gradients.
    """
    noises = {name: np.fmax(sizes, level * largest_of(sample.values[name])) for name, sizes in sample.noise.items()}
    is_solver = level > rounding(sample.unit)
    bars = {
        pair: np.fmax(bar, NOISES * level * (sample.largest_at(pair) if is_solver else sample.size_of(pair)))
        for pair, bar in sample.bars.items()
    }
    unit = max([sample.unit, *(_relative(sample, name, sizes) for name, sizes in noises.items())])
    return replace(sample, noise=noises, bars=bars, unit=min(unit, WIDEST_UNIT))


def rounding(unit: float) -> float:
    """Return how far a derivative may be off, relative to its largest number, if its values are off by a unit."""
    return unit * (ROUNDINGS if unit <= NARROW else FEW_ROUNDINGS)


def largest_of(x: Array) -> float:
    """Return the largest size of a number, besides NaN."""
    return float(np.nanmax(np.abs(x), initial=0.0))


def _nonlinearity(meter: Meter, sample: Sample, rng: np.random.Generator) -> float:
    """Return how far vjp(a + b) is from vjp(a) + vjp(b), relative to the largest number, if a solver explains it.

    A solver that stops at a tolerance is linear only within that: b, which has one number that is not 0, takes another
    number of iterations than a does.
    """
    other = {slot.name: _unit(slot, rng) for slot in sample.outputs}
    both = {name: dy + other[name] for name, dy in sample.cotangents.items()}
    two, together = (gradients(meter, sample.point, dys, sample.inputs) for dys in (other, both))
    found = 0.0
    for pair, dx in sample.gradients.items():
        size = max(largest_of(dx), largest_of(two[pair]))
        apart = largest_of(together[pair] - dx - two[pair])
        if size and apart <= meter.function.tolerance * size:
            found = max(found, apart / size)
    return found


def _of_solver(line: Array, tolerance: float) -> Array:
    """Return the noise of values on a line, 0 where it is larger than that of a solver.

    A solver that stops at a tolerance is smooth nearby, and jumps by that where the number of its iterations changes.
    """
    found = noise.on_line(line)
    return np.where(found <= tolerance * largest_of(line), found, 0.0)


def _without_narrowing(found: Array, tiny: Array, value: Array) -> Array:
    """Return noise without that of numbers that are rounded to a narrower dtype, which could be better.

    Such a number stays as it is under ``tiny`` changes of the inputs, which move what cancels.
    """
    size = np.abs(value)
    return np.where((tiny <= WIDE_ROUNDING * size) & (found >= NARROWED * size), 0.0, found)


def _sizes(line: Array, noises: Array) -> Array:
    """Return how large the numbers are on a line, or how far they move on it; 0 for those that are rounding alone."""
    moved = line - line[int(np.argmin(np.abs(noise.NODES)))]
    sizes = np.nan_to_num(np.fmax.reduce(np.fmax(np.abs(line), np.abs(moved) / FAR)))
    return np.where(WIDEST_UNIT * sizes > noises, sizes, 0.0)


def _relative(sample: Sample, output: str, noises: Array) -> float:
    """Return the noise of the weighted sum of an output, relative to the sum of the sizes."""
    weights = np.abs(sample.cotangents[output])
    size = sample.size_of_sum(output)
    total = float(np.hypot.reduce(np.ravel(weights * noises)))
    return total / size if size > 0 and np.isfinite(total / size) else 0.0


def _unit(slot: Slot, rng: np.random.Generator) -> Array:
    found = np.zeros(slot.shape)
    if found.size:
        found.flat[rng.integers(found.size)] = 1.0
    return found


def vectors(slot: Slot, rng: np.random.Generator) -> Array:
    """Return random numbers with random signs, exact in the dtype of the slot."""
    numbers = rng.uniform(0.25, 1.0, slot.shape) * rng.choice([-1.0, 1.0], slot.shape)
    return floats.rounded(numbers, slot.dtype)


def directions(slot: Slot, size: Array, rng: np.random.Generator) -> Array:
    """Return random powers of two with random signs, at most ``size``: products with powers of two are exact."""
    with np.errstate(divide="ignore"):
        powers = 2.0 ** np.floor(np.log2(size)) * 2.0 ** -rng.integers(0, 3, slot.shape)
    return powers * rng.choice([-1.0, 1.0], slot.shape)


def first_steps(x: Array) -> Array:
    """Return the first step of each number: a power of two, so that all steps are exact."""
    return 2.0 ** np.floor(np.log2(FIRST_STEP * np.where(x == 0, 1.0, np.abs(x))))
