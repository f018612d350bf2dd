"""Answers on a line through a point: how far away they have the same bits, and whether they should have moved.

Equal bits prove nothing by themselves: gradients of a linear function are equal everywhere, and those of a narrower
dtype, or of a solver, nearby. So either answers further away fit a parabola that is elsewhere, by far more than they
scatter about it; or the values show that a derivative is not constant, with the same curvature at two steps.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import numpy as np

from pullback.dtypes import Array
from pullback.errors import ModelFailed
from pullback.gradcheck.checks.questions import Key, Questions
from pullback.gradcheck.function import Point
from pullback.gradcheck.sample import largest_of

DECIMALS, DIGITS = range(13), range(3, 13)
NARROWER = ("float32", "float16")
MOST_NAMED = 2
MOST = 4096
"""The most numbers of an input whose digits are compared."""
FIT = np.array([-13.1, -8.0, -4.0, 4.0, 8.0, 10.7])
"""The steps of a fit, in units of the largest one with the same answer. They are uneven, as staircases are not, and
powers of two, where answers are known, or far from these, whose answers a cache may have kept.
"""
WIDER, WIDE = 16.0, 2.0**-8
"""How many times larger they are at most, up to such a unit: of two in one cell of a rounded key, one is stale too."""
LARGEST_FIT = 2.0**-6
DEGREE = 2
SCATTER = 64
"""A change counts that is this many times larger than what answers scatter about a fit."""
SIDES = np.array([1.0, 0.5, 0.25, -0.25, -0.5, -1.0])
"""The steps to both sides at which values show a curvature: noise does not look alike at so many."""
SEEN = 2.0**-20
"""The least such step: rounding hides what the values change beside their slope at smaller ones."""
ALIKE = 0.25
"""How far two estimates of a curvature may be apart, as a fraction of the larger one."""


class Seen(NamedTuple):
    """The inputs of a point, and whether its answer is that of the first one, bit for bit."""

    inputs: Mapping[str, Array]
    is_same: bool


def likely_key(first: Mapping[str, Array], seen: Sequence[Seen]) -> str:
    """Return what key explains all that was seen, such as "rounds inputs to 6 decimals", or "" for none."""
    if all(each.is_same for each in seen):
        return "lacks the inputs"
    found = (name for name, key in _keys() if all(_agrees(key, first, each) for each in seen))
    return " or ".join(islice(found, MOST_NAMED))


def _keys() -> Iterator[tuple[str, Callable[[Array], Array]]]:
    """Yield the keys that are tried, those first that programs have most often."""
    for decimals in DECIMALS:
        yield f"rounds inputs to {decimals} decimals", lambda x, n=decimals: np.round(x, n)
    for dtype in NARROWER:
        yield f"has inputs in {dtype}", lambda x, dtype=dtype: x.astype(dtype)
    for digits in DIGITS:
        yield f"has {digits} digits of each input", lambda x, n=digits: _to_digits(x, n)


def _agrees(key: Callable[[Array], Array], first: Mapping[str, Array], seen: Seen) -> bool:
    pairs = ((first[name], x) for name, x in seen.inputs.items() if not np.array_equal(first[name], x))
    return all(np.array_equal(key(one), key(other)) for one, other in pairs) == seen.is_same


def _to_digits(x: Array, digits: int) -> Array:
    return np.array([float(f"{number:.{digits}g}") for number in np.ravel(x)[:MOST]])


@dataclass(frozen=True)
class Stale:
    """An answer that is the same at 0 and at ``step``, what it should be at one of them, and its error bar.

    If it ``is_sum``, they are the sum of the answer's numbers times a direction.
    """

    answer: Array
    expected: Array
    bar: Array
    step: float
    shown_by: str = "the answer close by"
    is_sum: bool = False

    @property
    def is_wrong(self) -> bool:
        """Whether a number is off by more than its error bar."""
        return bool((np.abs(self.answer - self.expected) > self.bar).any())


@dataclass(eq=False)
class Ray:
    """The answers to a question on a line through a point, where the answer is ``here``. Each is asked for once."""

    ask: Questions
    key: Key
    here: Array
    _answers: dict[float, Array] = field(default_factory=dict[float, Array])
    _is_near: bool = False

    def stale(self, smallest: int) -> Stale | None:
        """Return an answer that is stale, if there is one; the smallest step is 2 to the power of ``smallest``."""
        step = self._farthest(smallest)
        if step is None:
            return None
        looks = (self._from_fit, self._from_values)
        found = (look(step) for look in (looks if abs(step) <= WIDE else reversed(looks)))
        return next((stale for stale in found if stale is not None and stale.is_wrong), None)

    def likely_key(self) -> str:
        """Return the key of a cache that explains the answers."""
        seen = [Seen(self._point(step).inputs, self._is_same(step)) for step in self._answers]
        return likely_key(self.ask.sample.point.inputs, seen)

    def is_kept(self, step: float) -> bool:
        """Report whether the server still knows the answer at a step after another one."""
        for each in (0.0, step, next((each for each in self._answers if not self._is_same(each)), step)):
            self._asked(each)
        return np.array_equal(self._asked(step), self.here)

    def _farthest(self, smallest: int) -> float | None:
        """Return the largest step, a power of two to one side, at which the answer has the same bits."""
        if not self._is_same_after_here(2.0**smallest):
            return None
        if self._is_same_after_here(1.0):
            return 1.0
        low = self._bisect(1.0, smallest, 0)
        # The point may be near the end of a cell.
        if low + 1 < 0 and self._is_same_after_here(-(2.0 ** (low + 1))):
            return -(2.0 ** self._bisect(-1.0, low + 1, 0))
        return 2.0**low

    def _bisect(self, sign: float, low: int, high: int) -> int:
        """Return the largest exponent of steps to a side with the same bits, which are those at the lower one alone."""
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._is_same_after_here(sign * 2.0**middle) else (low, middle)
        return low

    def _from_fit(self, step: float) -> Stale | None:
        """Compare with the parabola through answers at larger steps, none of which has the same bits."""
        if abs(step) > LARGEST_FIT:
            return None
        wider = min(WIDER, max(1.0, WIDE / abs(step)))
        steps = step * wider * FIT
        answers = np.stack([self._at(each) for each in steps]).reshape(len(steps), -1)
        if any(self._is_same(each) for each in steps) or not np.isfinite(answers).all():
            return None
        basis = np.vander(wider * FIT, DEGREE + 1, increasing=True)
        found = np.linalg.lstsq(basis, answers, rcond=None)[0]
        scatter = np.sqrt(np.sum((answers - basis @ found) ** 2, axis=0) / (len(steps) - DEGREE - 1))
        bar = np.full(self.here.shape, max(self.ask.rounding(self.here), SCATTER * largest_of(scatter)))
        # At both ends of the step the bits are the same: they belong to one at most.
        expected = max(found[0], found.sum(axis=0), key=lambda each: largest_of(np.ravel(self.here) - each))
        return Stale(self.here, expected.reshape(self.here.shape), bar, step, "what the answers around show")

    def _from_values(self, step: float) -> Stale | None:
        """Compare with the parabola through what a derivative is the slope of, at steps to both sides.

        Its curvature must be alike at all of them: that of steps, or of a gradient that is wrong anyway, is not.
        """
        ask, key, half = self.ask, self.key, step / 2
        if key.kind == "values" or abs(half) < SEEN or not self._is_same(half):
            return None
        steps, slope = half * SIDES, ask.slope(key, self.here)
        try:
            middle = ask.whole(key, ask.sample.point)
            changes = [ask.whole(key, self._point(each)) - middle for each in steps]
        except ModelFailed:
            return None
        found = np.array([(change - t * slope) / t**2 for change, t in zip(changes, steps, strict=True)])
        curvature, apart = np.median(found, axis=0), np.ptp(found, axis=0)
        is_seen = np.abs(curvature) * np.min(steps**2) > SCATTER * ask.rounding_of_whole(key)
        is_curved = (apart <= ALIKE * np.abs(curvature)) & is_seen
        bar = np.where(is_curved, np.abs(half) * apart, np.inf)
        whole = "gradients" if key.kind == "Hessian" else "values"
        shown_by, is_sum = f"what the {whole} on both sides show", key.kind == "gradient"
        return Stale(slope, slope + 2 * half * curvature, bar, half, shown_by, is_sum)

    def _point(self, step: float) -> Point:
        return self.ask.moved(self.ask.along(self.key), step)

    def _at(self, step: float) -> Array:
        if step not in self._answers:
            self._answers[step] = self._asked(step)
        return self._answers[step]

    def _is_same_after_here(self, step: float) -> bool:
        """Ask at the point itself before, unless the last answer was the same: a cache may keep the last one alone."""
        if step not in self._answers and not self._is_near:
            self._asked(0.0)
        self._is_near = self._is_same(step)
        return self._is_near

    def _is_same(self, step: float) -> bool:
        return np.array_equal(self._at(step), self.here)

    def _asked(self, step: float) -> Array:
        try:
            return self.ask.ask(self.key, self._point(step))
        except ModelFailed:
            # A step may leave the function's domain.
            return np.full(self.here.shape, np.nan)
