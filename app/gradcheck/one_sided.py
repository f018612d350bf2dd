"""Estimate the derivatives on both sides of a point, where there may be a kink, a tie, a jump or the end of a domain.

The least and the largest right derivative along a direction are the ends of the hull of those on both sides and nearby.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from app.autodiff.point import Arrays
from app.errors import OpFailed, Unprocessable
from app.gradcheck import rounding
from app.gradcheck.objective import Objective, moved
from app.gradcheck.points import sides
from app.gradcheck.sample import Sample
from app.gradcheck.target import Target
from ops import Array
from pullback.gradcheck.numeric import COVERAGE

# The steps in each direction, as fractions of the first.
STEPS = np.array([1.0, 0.5, 0.25, 0.125])
# How many points nearby show the derivatives where ties are broken, how far they are, in first steps, and by which
# fraction such a derivative must differ from the others to count.
NEARBY_POINTS, NEARBY_DISTANCE, OTHER_SLOPE = 12, 16.0, 0.01
# How often other points nearby are drawn for a gradient that looks wrong, where the derivatives differ: the hull of
# many kinks that meet, as those of eigenvalues that are equal, is larger than a few show.
MORE_DRAWS = 8
# Where functions of complex numbers may have cuts: how much nearer other points are, which show on which side one is.
CLOSER = 1 / 8
# A change that keeps this fraction of itself over shorter ways, and is more than so many roundings, is a jump.
STAYS, JUMP = 0.5, 1e3
# How far within its domain a number at its end stays nearby, as a fraction of the distance.
INNER = 2.0**-6
# The relative error above which a one-sided derivative proves nothing.
MAX_RELATIVE_ERROR = 0.05


class OneSided(NamedTuple):
    """The least and the largest right derivative along directions, their errors, and how far two estimates differ.

    ``error`` is that of the extrapolation, and ``noise`` that of rounding.
    """

    low: Array
    high: Array
    error: Array
    noise: Array
    apart: Array

    @property
    def middle(self) -> Array:
        """The middle of the hull."""
        return (self.low + self.high) / 2

    @property
    def largest(self) -> Array:
        """The size of the largest right derivative."""
        return np.fmax(np.abs(self.low), np.abs(self.high))

    @property
    def bar(self) -> Array:
        """How far both ends may be off."""
        return COVERAGE * (self.error + self.noise) + self.apart

    def is_usable(self, analytic: Array, bar: Array) -> Array:
        """Return where the derivatives are known well enough to judge an analytic one, which has this error bar."""
        return self.bar <= MAX_RELATIVE_ERROR * np.fmax(np.abs(analytic), self.largest) + bar

    def is_off(self, analytic: Array, bar: Array) -> Array:
        """Return where an analytic derivative with this error bar is beyond the hull, which is known well enough."""
        with np.errstate(invalid="ignore"):
            is_beyond = np.abs(analytic - self.middle) > (self.high - self.low) / 2 + self.bar + bar
        return is_beyond & self.is_usable(analytic, bar)

    def joined(self, other: "OneSided") -> "OneSided":
        """Return the hull of this and of another one."""
        error, noise = np.fmax(self.error, other.error), np.fmax(self.noise, other.noise)
        return OneSided(np.fmin(self.low, other.low), np.fmax(self.high, other.high), error, noise, self.apart)


def one_sided_derivatives(
    target: Target, sample: Sample, objective: Objective, directions: Sequence[Arrays], gradient: tuple[Array, Array]
) -> OneSided:
    """Return the derivatives; where a gradient looks wrong, as they are nearer, and how far that differs.

    ``gradient`` has the analytic derivatives along the directions, and their error bars. Shapes: (K,) for K directions,
    and (K, *shape) for an elementwise op. Raises ``OpFailed`` or ``Unprocessable`` if the op rejects a point nearby,
    other than beyond an end of its domain.
    """
    (analytic, bars), unit = gradient, rounding.eps(objective.dtype)
    first = 2.0 ** np.floor(np.log2(unit) / 4)
    found = _at_distance(target, sample, objective, directions, first)
    for again in range(1, 1 + MORE_DRAWS):
        if not found.is_off(analytic, bars).any():
            return found
        if not (found.low < found.high).any():
            break
        found = found.joined(_at_distance(target, sample, objective, directions, first, draw=again))
    if not found.is_off(analytic, bars).any():
        return found
    nearer = _at_distance(target, sample, objective, directions, first * 2.0 ** np.floor(np.log2(unit) / 5))
    apart = np.fmax(np.abs(nearer.low - found.low), np.abs(nearer.high - found.high))
    most = MAX_RELATIVE_ERROR * nearer.largest
    is_known, is_noisy = nearer.bar <= most, COVERAGE * nearer.noise > most
    # A function that is not noise, and has no slope nearer, is one that the larger steps undersample.
    found = found._replace(apart=np.where(is_noisy, 0.0, np.inf))
    return OneSided(*(np.where(is_known, *of) for of in zip(nearer._replace(apart=apart), found, strict=True)))


def _at_distance(
    target: Target, sample: Sample, objective: Objective, directions: Sequence[Arrays], first: float, *, draw: int = 0
) -> OneSided:
    """Return the derivatives along each direction from steps of ``first`` on.

    Where one side is not finite, or the op rejects it beyond an end of its domain, the other one is the derivative.
    """
    moves = first * np.concatenate([[0.0], STEPS, -STEPS, [STEPS[-1], -STEPS[-1]] * NEARBY_POINTS])
    # Beside a cut, the derivatives on its other side do not count.
    has_cuts = any(slot.is_complex for slot in target.op.inputs)
    moves = np.concatenate([moves, np.zeros(NEARBY_POINTS * has_cuts)])
    rows, rng = dict[str, Array](), target.rng(f"nearby {draw}" if draw else "nearby")
    for name in sample.vectors:
        x = np.asarray(sample.point.inputs[name], np.float64)
        size = np.max([np.abs(d[name]) for d in directions], axis=0)
        away = NEARBY_DISTANCE * first * size
        nearby = away * _within(target, name, x, _strata(x.shape, rng))
        bases = [*[x] * (1 + 2 * len(STEPS)), *(x + each for each in nearby for _ in range(2))]
        bases = np.stack([*bases, *(x + CLOSER * nearby)] if has_cuts else bases)
        column = moves.reshape(-1, *(1,) * x.ndim)
        rows[name] = np.concatenate([moved(bases, column * d[name]) for d in directions])
    values = _values(target, sample, objective, rows)
    size = len(directions), *(next(iter(sample.point.inputs.values())).shape if sample.is_elementwise else ())
    low, high, error, noise = (np.zeros(size) for _ in range(4))
    with np.errstate(all="ignore"):
        for name, weight in objective.weights.items():
            weights = np.ravel(np.asarray(weight, np.float64))
            terms = np.asarray(values[name], np.float64).reshape(len(directions), len(moves), -1) * weights
            # The bounds are those of the op: the values of a surrogate may be larger, and round too. A gradient in a
            # parameter may have a narrower dtype than the others.
            sizes = np.max(np.abs(terms), axis=1, where=np.isfinite(terms), initial=0.0)
            eps = max(map(rounding.eps, (objective.dtype, values[name].dtype.name)))
            rounds = np.fmax(np.ravel(objective.bounds[name]) * np.abs(weights), eps * sizes)
            hull = _hull(terms, first, rounds, is_complex=name in sample.point.spec.outputs.pairs)
            parts = (*hull, rounds / (first * STEPS[-1]))
            for total, part in zip((low, high, error, noise), parts, strict=True):
                np.add(total, np.reshape(part, size) if sample.is_elementwise else np.sum(part, axis=-1), out=total)
    return OneSided(low, high, error, noise, np.zeros(size))


def _values(target: Target, sample: Sample, objective: Objective, rows: Arrays) -> Arrays:
    """Return the values of an objective at rows; NaN where the op rejects numbers beyond an end of their domain."""
    try:
        return objective.function(rows)
    except (OpFailed, Unprocessable):
        points = {name: np.asarray(sample.point.inputs[name], np.float64) for name in rows}
        outside = {name: sides(target.op, name, x) * (rows[name] - x) < 0 for name, x in points.items()}
        if not any(out.any() for out in outside.values()):
            raise
        values = objective.function({name: np.where(outside[name], x, rows[name]) for name, x in points.items()})
    if sample.is_elementwise:
        hidden = np.any(list(outside.values()), axis=0)
        return {name: np.where(hidden, np.nan, value) for name, value in values.items()}
    hidden = np.any([out.reshape(len(out), -1).any(axis=1) for out in outside.values()], axis=0)
    return {
        name: np.where(hidden.reshape(-1, *(1,) * (np.ndim(value) - 1)), np.nan, value)
        for name, value in values.items()
    }


def _hull(terms: Array, first: float, rounds: Array, *, is_complex: bool) -> tuple[Array, Array, Array]:
    """Return the least and the largest right derivative of each term, and the error; ``terms`` has the moves in axis 1.

    Besides the two one-sided derivatives, those at points nearby count, if they are clearly others: there the ties are
    broken. Clarke's subdifferential is the hull of the limits of such derivatives. A side that jumps has none, and
    neither has a point on the other side of a jump. Both parts of complex numbers jump at once. ``rounds`` are the
    errors of the terms.
    """
    count, middle = len(STEPS), terms[:, 0]
    right, its_error = _one_sided(middle, terms[:, 1 : count + 1], first, rounds, is_complex)
    left, other_error = _one_sided(middle, terms[:, count + 1 : 2 * count + 1], -first, rounds, is_complex)
    right, left = np.where(np.isfinite(right), right, left), np.where(np.isfinite(left), left, right)
    pairs = terms[:, 2 * count + 1 :][:, : 2 * NEARBY_POINTS]
    closer = terms[:, 2 * count + 1 + 2 * NEARBY_POINTS :]
    nearby = (pairs[:, ::2] - pairs[:, 1::2]) / (2 * first * STEPS[-1])
    if closer.size:
        is_beyond = _jumps(np.stack([pairs[:, ::2], closer]) - middle[:, None], rounds[:, None], is_complex)
        nearby = np.where(is_beyond, np.nan, nearby)
    both = np.stack([right, left], axis=1)
    size = np.fmax(np.abs(nearby), np.abs(both).max(axis=1, keepdims=True))
    apart = np.abs(nearby[:, :, None] - both[:, None]).min(axis=2)
    others = np.where(apart > OTHER_SLOPE * size, nearby, right[:, None])
    every = np.concatenate([both, others], axis=1)
    return (
        np.fmin.reduce(every, axis=1),
        np.fmax.reduce(every, axis=1),
        np.nan_to_num(its_error) + np.nan_to_num(other_error),
    )


def _jumps(changes: Array, rounds: Array, is_complex: bool) -> Array:
    """Return where changes, in axis 0 those over shorter and shorter ways, do not fall: a jump is as large over any."""
    size = np.abs(changes)
    found = (size.min(axis=0) > STAYS * size.max(axis=0)) & (size.min(axis=0) > JUMP * rounds)
    if is_complex:
        pairs = found.reshape(*found.shape[:-1], -1, 2)
        found = np.broadcast_to(pairs.any(axis=-1, keepdims=True), pairs.shape).reshape(found.shape)
    return found


def _within(target: Target, name: str, x: Array, strata: Array) -> Array:
    """Return the strata of numbers at an end of their domain within it."""
    inward = sides(target.op, name, x)
    # Their derivatives are taken there over a step, which is less than a stratum.
    return np.where(inward == 0, strata, inward * (INNER + (1 - INNER) * (strata + 1) / 2))


def _strata(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Return ``NEARBY_POINTS`` arrays from -1 to 1; each element has one number in every part of this range.

    So among up to ``NEARBY_POINTS`` equal numbers, each is moved to every rank. No two are so near that a step from one
    passes the other.
    """
    count = max(NEARBY_POINTS, math.prod(shape))
    first = rng.permutation(math.prod(shape)).reshape(shape)
    part = (first + (np.arange(NEARBY_POINTS) * count // NEARBY_POINTS).reshape(-1, *(1,) * len(shape))) % count
    return 2 * (part + rng.uniform(0.25, 0.75, part.shape)) / count - 1


def _one_sided(middle: Array, beside: Array, first: float, rounds: Array, is_complex: bool) -> tuple[Array, Array]:
    """Return the derivative on one side, extrapolated to step 0, and its error; ``beside`` has the steps in axis 1.

    It is NaN at a jump.
    """
    slopes = np.stack([(beside[:, i] - middle) / (first * step) for i, step in enumerate(STEPS)])
    extrapolated = 2 * slopes[1:] - slopes[:-1]
    is_jump = _jumps(np.moveaxis(beside, 1, 0) - middle, rounds, is_complex)
    return np.where(is_jump, np.nan, extrapolated[1]), np.where(is_jump, 0.0, np.ptp(extrapolated, axis=0))
