"""The derivative: gradients of a server beside numeric derivatives of its own values."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import numpy as np

from pullback.dtypes import Array
from pullback.errors import ModelFailed
from pullback.gradcheck import slope_comparison
from pullback.gradcheck.checks import kinks
from pullback.gradcheck.checks.evidence import Line
from pullback.gradcheck.function import Slot
from pullback.gradcheck.meter import Meter
from pullback.gradcheck.number_comparison import Comparison
from pullback.gradcheck.numeric import COVERAGE, Slopes, Status, slopes
from pullback.gradcheck.plan import TAYLOR_STEPS, Plan
from pullback.gradcheck.reproduction import GradientCall
from pullback.gradcheck.sample import NOISES, Pair, Sample, directions, first_steps, gradients, vectors
from pullback.gradcheck.slope_comparison import add_slopes, estimate_twice, scale_of, usable_status

T = TypeVar("T")

MOST_HIDDEN = 10_000
"""How many numbers that no direction judges are listed."""

OF_KINK = 10
"""How many times the steps to one side a look at a kink takes, at most."""
FIRST_TAYLOR_STEP = 2.0**-2
"""The first step of a Taylor remainder, as a fraction of the first step of a numeric derivative."""


@dataclass(frozen=True)
class Move:
    """A direction of one input. If it moves one number alone, ``index`` is its index."""

    slot: Slot
    by: Array
    index: tuple[int, ...] | None = None


def moves(sample: Sample, plan: Plan, rng: np.random.Generator) -> list[Move]:
    """Return the random directions of a plan, and then the numbers that move alone."""
    found: list[Move] = []
    for slot in sample.inputs:
        size = first_steps(sample.point.inputs[slot.name])
        for _ in range(plan.directions):
            # Along powers of two, kinks in several numbers at once may cancel.
            by = size * vectors(slot, rng) if sample.point.is_special else directions(slot, size, rng)
            found.append(Move(slot, by))
        for at in sorted(rng.permutation(size.size)[: plan.coordinates_of(len(sample.inputs))].tolist()):
            index = tuple(map(int, np.unravel_index(int(at), slot.shape)))
            by = np.zeros(slot.shape)
            by[index] = size[index]
            found.append(Move(slot, by, index))
    return found


@dataclass(eq=False)
class Derivatives:
    """Compares the gradients of all outputs with numeric derivatives, by pair of an output and an input.

    Where a gradient looks wrong, spare evaluations may be spent on second estimates. ``rates`` has those of Taylor
    remainders, as text, and ``tolerated`` the largest errors that a solver may explain, as fractions.
    """

    meter: Meter
    plan: Plan
    comparisons: Mapping[Pair, Comparison]
    rates: dict[Pair, str] = field(default_factory=dict[Pair, str])
    tolerated: dict[Pair, float] = field(default_factory=dict[Pair, float])
    _shows: dict[Pair, Array] = field(default_factory=dict[Pair, Array])

    def compare(self, sample: Sample, move: Move) -> None:
        """Compare along a direction."""
        pairs = [(slot.name, move.slot.name) for slot in sample.outputs]
        analytic, bar = (
            np.array([float(np.sum(values)) for values in parts])
            for parts in (
                [sample.gradients[pair] * move.by for pair in pairs],
                [sample.bars[pair] * np.abs(move.by) for pair in pairs],
            )
        )
        numeric = self._slopes(sample, move, analytic, bar)
        # Of a number alone, the derivative in it; along a direction, that of the step.
        size = 1.0 if move.index is None else float(np.abs(move.by[move.index]))
        x = None if move.index is None else np.array([sample.point.inputs[move.slot.name][move.index]])
        times, status = move.by if move.index is None else None, usable_status(numeric)
        sizes = np.array([float(np.sum(np.abs(sample.gradients[pair] * move.by))) for pair in pairs])
        with np.errstate(invalid="ignore"):
            apart = np.abs(analytic - numeric.value)
            # A solver may be smooth along this line, and its exact derivative another.
            is_small = (apart > COVERAGE * numeric.error + bar) & (apart <= self.meter.function.tolerance * sizes)
        status = np.where((status == Status.OK) & is_small, Status.TOLERANCE, status)
        for pair, fraction in zip(pairs, apart / sizes, strict=True):
            if status[pairs.index(pair)] == Status.TOLERANCE:
                self.tolerated[pair] = max(self.tolerated.get(pair, 0.0), float(fraction))
        self._look(sample, move, pairs, np.where(status == Status.OK, COVERAGE * numeric.error + bar, np.inf))
        for k, pair in enumerate(pairs):
            one = slice(k, k + 1)
            call = GradientCall(self.meter, sample, pair, sample.cotangents[pair[0]], times)
            terms = np.max(np.abs(move.by) * sample.terms(pair), initial=0.0) / size
            numeric_of = Slopes(numeric.value[one] / size, numeric.error[one] / size, numeric.status[one], 0)
            add_slopes(
                self.comparisons[pair],
                analytic[one] / size,
                numeric_of,
                bar[one] / size,
                scale=scale_of(analytic[one] / size, numeric_of, terms),
                status=status[one],
                x=x,
                index=_constant(move.index),
                calls=_constant(call),
            )

    def judge_hidden(self) -> None:
        """Tell the comparisons which numbers are not 0, and under the error bar along each direction."""
        for pair, shows in self._shows.items() if self.plan.steps else ():
            for at in np.argwhere(~shows)[:MOST_HIDDEN]:
                self.comparisons[pair].judge(shows.shape, tuple(map(int, at)), is_judged=False)

    def _look(self, sample: Sample, move: Move, pairs: list[Pair], bars: Array) -> None:
        for pair, bar in zip(pairs, bars, strict=True):
            dx = np.abs(sample.gradients[pair])
            shows = dx * np.abs(move.by) > bar
            if pair not in self._shows:
                is_noise = dx <= sample.bars[pair] if self.plan.measures_noise else dx == 0
                self._shows[pair] = is_noise
            self._shows[pair] |= shows

    def _slopes(self, sample: Sample, move: Move, analytic: Array, bar: Array) -> Slopes:
        line, ones = Line(_functions(self.meter, sample, move)), np.ones(len(sample.outputs))
        if not self.plan.steps:
            steps = FIRST_TAYLOR_STEP * 0.5 ** np.arange(TAYLOR_STEPS)
            values = line(np.concatenate([[0.0], steps])[:, None] * ones)
            found = slope_comparison.slopes(values, steps, sample.unit)
            rates = slope_comparison.rates(values, steps, analytic, found, bar)
            self.rates |= {(slot.name, move.slot.name): rate for slot, rate in zip(sample.outputs, rates, strict=True)}
            return line.judged(found, np.zeros(len(ones)))
        noise = np.array([NOISES * _noise(sample, slot.name) for slot in sample.outputs])
        estimate = partial(slopes, line, unit=sample.unit, rounding=noise, count=self.plan.steps)
        if self.meter.spare < 2 * self.plan.steps:
            return self._judged(line, sample, estimate(ones), noise)
        before = self.meter.done
        found = self._judged(line, sample, estimate_twice(estimate, ones, analytic, bar), noise)
        if self.meter.spare > OF_KINK * self.plan.steps:
            found = self._judged_at_kinks(sample, move, noise, found, (analytic, bar))
        self.meter.spare -= max(0, self.meter.done - before - 2 * self.plan.steps)
        return found

    def _judged_at_kinks(
        self, sample: Sample, move: Move, noise: Array, found: Slopes, gradient: tuple[Array, Array]
    ) -> Slopes:
        """Return slopes as the kinks of the number that moves, and those of others, let them stand."""
        estimate, moved = (
            self._estimate_of(sample, move, noise),
            kinks.Moved(sample.point.inputs, move.slot.name, move.by),
        )
        if move.index is not None:
            found = kinks.judged(found, estimate, moved, gradient)

        def across(seed: int) -> Slopes:
            size = first_steps(moved.inputs[moved.name])
            other = Move(move.slot, size * vectors(move.slot, np.random.default_rng(seed)))
            return self._estimate_of(sample, other, noise)(moved.inputs, 0)

        def slope_and_gradient(inputs: Mapping[str, Array]) -> tuple[Slopes, Array]:
            point = replace(sample.point, inputs=inputs)
            dxs = gradients(self.meter, point, sample.cotangents, [move.slot])
            along = [float(np.sum(dxs[slot.name, moved.name] * move.by)) for slot in sample.outputs]
            return estimate(inputs, 0), np.array(along)

        return kinks.of_others(found, across, slope_and_gradient, moved, gradient)

    def _estimate_of(self, sample: Sample, move: Move, noise: Array) -> kinks.Estimate:
        """Return a function that estimates the slopes along a move at other inputs, or on one side."""

        def estimate(inputs: Mapping[str, Array], side: int) -> Slopes:
            moved = replace(sample, point=replace(sample.point, inputs={**sample.point.inputs, **inputs}))
            try:
                values = sample.values if inputs is sample.point.inputs else self.meter.values(moved.point)
            except ModelFailed:
                values = {slot.name: np.full(slot.shape, np.nan) for slot in sample.outputs}
            functions = _functions(self.meter, replace(moved, values=values), move)
            ones = np.ones(len(sample.outputs))
            scale = kinks.NEAR * ones
            return slopes(functions, scale, sample.unit, noise, count=self.plan.steps, sides=side * ones)

        return estimate

    def _judged(self, line: Line, sample: Sample, found: Slopes, noise: Array) -> Slopes:
        size = np.abs(line.values[0][0])
        return line.judged(found, np.fmax(noise, sample.unit * size), size)


def _constant(value: T) -> Callable[[int], T]:
    return lambda _: value


def _noise(sample: Sample, output: str) -> float:
    return float(np.hypot.reduce(np.ravel(sample.cotangents[output] * sample.noise[output])))


def _functions(meter: Meter, sample: Sample, move: Move) -> Callable[[Array], Array]:
    """Return the weighted sums of all outputs, a column each, as a function of the step along a direction.

    They have a constant, the sum of the sizes at the point, because the noise of a sum is that of its terms.
    """

    def sums(values: Mapping[str, Array]) -> list[float]:
        return [
            sample.size_of_sum(slot.name)
            + float(np.sum(sample.cotangents[slot.name] * (values[slot.name] - sample.values[slot.name])))
            for slot in sample.outputs
        ]

    def functions(steps: Array) -> Array:
        rows: list[list[float]] = []
        for step in steps[:, 0]:
            if step == 0:
                rows.append(sums(sample.values))
                continue
            try:
                rows.append(sums(meter.values(sample.moved({move.slot.name: step * move.by}))))
            except ModelFailed:
                # A large step may leave the function's domain.
                rows.append([np.nan] * len(sample.outputs))
        return np.array(rows)

    return functions
