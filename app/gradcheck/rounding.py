"""Bounds of the rounding error of a correct result.

The bound is that of a *mixed stable* algorithm: its result is within a few units of rounding of the exact result for
inputs that are off by a few units of rounding (Higham, "Accuracy and Stability of Numerical Algorithms", 1.5). So a
result y with sensitivity L to a relative change of the inputs may be off by ``C eps (max(1, |y|) + L)``, where 1 stands
for the constants in an op's formula, as in 1 + eˣ, times the directions that multiply them. An op that cancels inside
has larger errors than that: its *noise* is measured, and added.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar, cast

import ml_dtypes
import numpy as np

from app.gradcheck import noise
from app.gradcheck.noise import accumulate_max, scaled
from ops import Array

K = TypeVar("K", bound=Hashable)
Q = TypeVar("Q", bound=Hashable)
Evaluate: TypeAlias = Callable[[Sequence[Mapping[K, Array]]], Sequence[Mapping[Q, Array]]]
"""From many sets of leaves to the results of each, by name."""

# The roundings behind one element of a result: few ops have more than two dozen in a row, and since their errors have
# either sign, they add up to less than their sum.
ROUNDINGS = 16
# The relative step that measures the sensitivity: small enough to be local, large enough for a difference of float64
# numbers.
STEP = 2.0**-20
STEP_IN_NARROW = 2.0**-8
DRAWS = 3
# The bound covers this many times the noise.
NOISES = 8.0


def eps(dtype: str) -> float:
    """Return the relative distance between neighbouring numbers of a dtype."""
    return float(_limits(dtype).eps)


def tiny(dtype: str) -> float:
    """Return the smallest normal number: kernels flush smaller ones to 0, simplified graphs keep them."""
    return float(_limits(dtype).smallest_normal)


def largest(dtype: str) -> float:
    """Return the largest number."""
    return float(_limits(dtype).max)


@dataclass(frozen=True)
class Rounding(Generic[Q]):
    """The rounding error that each number of each result may have, in units of ``eps`` of its dtype, and its noise.

    ``noises`` has the median over the numbers of a result, and ``terms`` the size of the terms of each number.
    """

    bounds: dict[Q, Array]
    noises: dict[Q, float]
    terms: dict[Q, Array]


def measure(
    evaluate: Evaluate[K, Q],
    leaves: Mapping[K, Array],
    rng: np.random.Generator,
    *,
    elementwise: bool,
    ones: Callable[[Q], float],
    noise_floors: Mapping[Q, float] | None = None,
) -> Rounding[Q]:
    """Return the rounding of an op's results at its leaves.

    The sensitivity is measured with random relative changes of the leaves: element by element for an elementwise op,
    else relative to the largest element of each leaf. Sums over n elements add n roundings. ``ones`` returns the size
    of the op's constants, which are about 1, in each result, which is linear in its directions. The measured noise is
    added.

    At special points, ``noise_floors`` has the noises at other points: numbers that are 0 show none, because relative
    changes do not move them, and a few equal numbers do not show that noise is that of a narrower dtype.
    """
    is_wide = all(leaf.dtype.itemsize >= np.float32().itemsize for leaf in leaves.values())
    step = STEP if is_wide else STEP_IN_NARROW
    steps = _perturbed(leaves, step, rng, elementwise=elementwise)
    probes = noise.perturbations(leaves, {name: eps(str(leaf.dtype)) for name, leaf in leaves.items()}, rng)
    results, *others = evaluate([leaves, *steps, *probes])
    at, *moved = _as_float64((results, *others))
    sensitivity = _sensitivity(moved[: len(steps)], at, step, elementwise=elementwise)
    noises = noise.measure(moved[len(steps) :], at, may_be_narrower=noise_floors is None)
    for name, floor in (noise_floors or {}).items():
        noises[name] = np.where(noises[name] == 0, floor, noises[name])
    terms = 1 if elementwise else max((max(leaf.shape, default=1) for leaf in leaves.values()), default=1)
    bounds, sizes = dict[Q, Array](), dict[Q, Array]()
    for name, value in at.items():
        size = np.abs(np.nan_to_num(value, nan=0.0, posinf=0.0, neginf=0.0))
        stable = np.maximum(ones(name), size if elementwise else size.max(initial=0.0)) + sensitivity[name]
        unit = eps(str(results[name].dtype)) if results[name].dtype.kind not in "iub" else 1.0
        # A result that changes by more than this jumps, and a jump is not noise.
        of_noise = np.where(noises[name] <= unit**0.25 * stable, noises[name] / (unit * stable), 0.0)
        if of_noise.size:
            # Where most numbers are noisy, one without noise is so by chance.
            of_noise = np.fmax(of_noise, np.median(of_noise))
        sizes[name] = stable * terms
        bounds[name] = stable * (ROUNDINGS * terms + NOISES * of_noise)
    return Rounding(bounds, {name: float(np.median(size)) for name, size in noises.items() if size.size}, sizes)


def spread(
    evaluate: Evaluate[K, Q], leaves: Mapping[K, Array], rng: np.random.Generator, unit: float
) -> dict[Q, Array]:
    """Return how far results move when each number of the leaves moves by a few times the relative size ``unit``.

    It is twice the largest change that was seen. Where a narrow dtype has no digits left, as in the phase of a fast
    wave, this is the size of the function, while a bound by its slope may be too small.
    """
    changes = (
        {name: ROUNDINGS * unit * rng.uniform(-1, 1, leaf.shape) for name, leaf in leaves.items()}
        for _ in range(2 * DRAWS)
    )
    at, *others = _as_float64(evaluate([leaves, *(scaled(leaves, change) for change in changes)]))
    largest = {name: np.zeros_like(value) for name, value in at.items()}
    for other in others:
        for name, value in other.items():
            accumulate_max(largest[name], 2 * (value - at[name]))
    return largest


def ulps(difference: float, of: float, dtype: str) -> float:
    """Return a difference in units in the last place of the number ``of`` in ``dtype``."""
    if not np.isfinite(of):
        return difference
    return difference / (2.0 ** math.floor(math.log2(max(abs(of), tiny(dtype)))) * eps(dtype))


def _limits(dtype: str) -> Any:
    # Its type is a union of NumPy's class and one of ml_dtypes, which has no stub.
    limits: Any = cast(Any, ml_dtypes).finfo(dtype)
    return limits


def _as_float64(results: Sequence[Mapping[Q, Array]]) -> list[dict[Q, Array]]:
    return [{name: np.asarray(value, np.float64) for name, value in each.items()} for each in results]


def _perturbed(
    leaves: Mapping[K, Array], step: float, rng: np.random.Generator, *, elementwise: bool
) -> list[dict[K, Array]]:
    """Return pairs of sets of leaves, moved by the relative ``step`` and by half of it.

    The leaves of an elementwise op move one after the other; those of any other op together, with random signs.
    """
    wide = {name: np.asarray(leaf, np.float64) for name, leaf in leaves.items()}
    sizes = {name: np.abs(leaf) if elementwise else np.abs(leaf).max(initial=0) for name, leaf in wide.items()}
    signs: list[dict[K, Array | float]] = [{other: float(other == name) for other in leaves} for name in leaves]
    if not elementwise:
        signs = [{name: rng.choice([-1.0, 1.0], x.shape) for name, x in leaves.items()} for _ in range(DRAWS)]
    with np.errstate(invalid="ignore", over="ignore"):
        return [
            {
                name: np.asarray(leaf + fraction * step * sizes[name] * sign[name]).astype(leaves[name].dtype)
                for name, leaf in wide.items()
            }
            for sign in signs
            for fraction in (1.0, 0.5)
        ]


def _sensitivity(
    moved: Sequence[Mapping[Q, Array]], at: Mapping[Q, Array], step: float, *, elementwise: bool
) -> dict[Q, Array]:
    """Return how fast results change with a relative change of the leaves, from their values where these are moved.

    Only the part of a change that halves with the step counts: a jump is as large at half the step.
    """
    total = {name: np.zeros_like(value) for name, value in at.items()}
    for whole, half in zip(moved[::2], moved[1::2], strict=True):
        for name, so_far in total.items():
            with np.errstate(invalid="ignore", over="ignore"):
                change = 2 * (whole[name] - half[name]) / step
            if elementwise:
                np.add(so_far, np.nan_to_num(np.abs(change), nan=0.0, posinf=0.0), out=so_far)
            else:
                accumulate_max(so_far, change)
    for change in () if elementwise else total.values():
        if change.size:
            # A number that the few random changes do not move, while they move its neighbours, is unmoved by chance.
            with np.errstate(over="ignore"):
                np.fmax(change, np.sqrt(np.mean(change**2)), out=change)
    return total
