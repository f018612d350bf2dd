"""Bounds of the rounding error of a correct result.

Each number of a result may be off by some roundings of

- its own size;
- its *terms*: how far it moves if every operation inside the op is off by a rounding. They show what cancels inside;
- its sensitivity to a relative change of the inputs, because the best algorithms are *mixed stable*: a result is within
  a few roundings of the exact one for inputs that are off by a few (Higham, "Accuracy and Stability of Numerical
  Algorithms", 1.5);
- its *noise*, which is measured, for what happens inside kernels.

All of these are sizes of the op's own numbers. Nothing is compared with 1, so an op in SI units is held to the same
digits as any other. In a narrow dtype, where inputs are exact and the widest dtype shows the true value, the size and
the terms are all that counts.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

import numpy as np

from app.autodiff.random_errors import NO_LOSSES, Losses
from ops import Array
from pullback.gradcheck import noise
from pullback.gradcheck.floats import eps, tiny, underflow
from pullback.gradcheck.noise import accumulate_max

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
# Numbers below this power of the smallest normal one may be lost: 3e-29 in float32.
FLUSHED_POWER = 0.75
DRAWS = 3
# The relative size of the random errors that measure the terms, by the ``eps`` of the dtype: its own rounding must be
# small beside them.
MEASURED = {2.0**-52: 2.0**-36, 2.0**-23: 2.0**-15}
# The size of the errors that show whether results jump, in ``eps``.
BESIDE = 4.0
# The bound covers this many times the noise.
NOISES = 8.0
# In a narrow dtype, how many roundings of itself a number may be off, and how many times the terms: kernels of half
# precision compute in float32 and round once, those of float32 are off by some units in the last place.
IN_HALF, IN_SINGLE = (1.0, 2.0), (8.0, 4.0)
# Numbers that spread by more than this part of themselves have few digits or none: then a few draws show neither the
# tails of their distribution nor its limits, and the spread counts so many times more.
FEW_DIGITS, OF_TAILS = 1 / 8, 3.0


def losses(dtype: str) -> Losses:
    """Return what subnormal numbers lose in a dtype, other than those that CPUs flush to 0."""
    return Losses(rounded=tiny(dtype) * eps(dtype)) if dtype == "float16" else NO_LOSSES


def deepest(dtype: str) -> float:
    """Return the largest number that may be lost because something that it is computed from is flushed to 0.

    A larger number that is lost so, such as a norm of numbers whose squares underflow, is a fault of the op. CPUs do
    not flush the numbers of float16.
    """
    return 0.0 if dtype == "float16" else tiny(dtype) ** FLUSHED_POWER


def measured_with(dtype: str) -> float:
    """Return the relative size of the random errors that measure the terms of results in a dtype."""
    return MEASURED.get(eps(dtype), eps(dtype))


@dataclass(frozen=True)
class Rounding(Generic[Q]):
    """The rounding error that each number of each result may have, in units of ``eps`` of its dtype, and its noise.

    ``noises`` has the median over the numbers of a result, ``terms`` the size of the terms of each number and of those
    around it, and ``scales`` that of its own terms alone.
    """

    bounds: dict[Q, Array]
    noises: dict[Q, float]
    terms: dict[Q, Array]
    scales: dict[Q, Array]


def measure(
    evaluate: Evaluate[K, Q],
    leaves: Mapping[K, Array],
    rng: np.random.Generator,
    *,
    elementwise: bool,
    terms: Mapping[Q, Array],
    elsewhere: Mapping[Q, float] | None = None,
    noise_floors: Mapping[Q, float] | None = None,
    narrows: Callable[[], bool] = lambda: False,
    is_hidden: Callable[[], bool] = lambda: False,
    room: Mapping[K, Array] = noise.NO_ROOM,
) -> Rounding[Q]:
    """Return the rounding of an op's results at its leaves.

    The sensitivity is measured with random relative changes of the leaves: element by element for an elementwise op,
    else relative to the largest element of each leaf. Sums over n elements add n roundings. ``terms`` are those of
    ``terms_of``. The measured noise is added, unless it is so large that it is a jump, beside the results here and
    ``elsewhere``.

    At special points, ``noise_floors`` has the noises at other points: numbers that are 0 show none, because relative
    changes do not move them, and a few equal numbers do not show that noise is that of a narrower dtype. ``narrows``
    returns whether the op is known to round to one. Where the dtypes inside are hidden, as in NumPy, such noise counts.
    ``room`` is how far the numbers of some leaves may move.
    """
    is_wide = all(leaf.dtype.itemsize >= np.float32().itemsize for leaf in leaves.values())
    step = STEP if is_wide else STEP_IN_NARROW
    steps = _perturbed(leaves, step, rng, elementwise=elementwise)
    probes = noise.perturbations(leaves, {name: eps(str(leaf.dtype)) for name, leaf in leaves.items()}, rng, room)
    results, *others = evaluate([leaves, *steps, *probes])
    at, *moved = _as_float64((results, *others))
    sensitivity = _sensitivity(moved[: len(steps)], at, step, elementwise=elementwise)
    may_be_narrower = noise_floors is None and not is_hidden()
    noises = noise.measure(moved[len(steps) :], at, may_be_narrower=may_be_narrower, narrows=narrows)
    for name, floor in (noise_floors or {}).items():
        noises[name] = np.where(noises[name] == 0, floor, noises[name])
    sums = 1 if elementwise else max((max(leaf.shape, default=1) for leaf in leaves.values()), default=1)
    bounds, sizes, scales = dict[Q, Array](), dict[Q, Array](), dict[Q, Array]()
    for name, value in at.items():
        size = np.abs(np.nan_to_num(value, nan=0.0, posinf=0.0, neginf=0.0))
        largest = float(size.max(initial=0.0))
        stable = size + sensitivity[name] + terms[name]
        if not elementwise and value.size:
            # The errors of one number reach the others; its neighbours show what it does not.
            stable = largest + sensitivity[name] + np.fmax(terms[name], np.sqrt(np.mean(terms[name] ** 2)))
        unit = eps(str(results[name].dtype)) if results[name].dtype.kind not in "iub" else 1.0
        # A result that changes by more than this jumps, and a jump is not noise.
        most = unit**0.25 * np.fmax(stable, max(largest, (elsewhere or {}).get(name, 0.0)))
        of_noise = np.where(noises[name] <= most, noises[name] / unit, 0.0)
        if of_noise.size:
            # Where most numbers are noisy, one without noise is so by chance.
            relative = np.divide(of_noise, stable, out=np.zeros_like(of_noise), where=stable > 0)
            of_noise = np.fmax(of_noise, np.median(relative) * stable)
        sizes[name], scales[name] = sums * stable, size + terms[name]
        bounds[name] = ROUNDINGS * sizes[name] + NOISES * of_noise
    return Rounding(bounds, {name: float(np.median(size)) for name, size in noises.items() if size.size}, sizes, scales)


def terms_of(
    at: Mapping[Q, Array], whole: Sequence[Mapping[Q, Array]], half: Sequence[Mapping[Q, Array]], scale: float
) -> dict[Q, Array]:
    """Return how far results move, in units of the random errors inside the op that move them.

    ``at`` are the results without errors, ``whole`` those with errors of relative size ``scale``, and ``half`` those
    with half of the same errors. Only what halves with the errors counts: a jump does not.
    """
    found = {name: np.zeros(value.shape) for name, value in at.items()}
    middle, *both = _as_float64((at, *whole, *half))
    for one, other in zip(both[: len(whole)], both[len(whole) :], strict=True):
        for name, terms in found.items():
            with np.errstate(invalid="ignore", over="ignore"):
                moves = [one[name] - middle[name], 2 * (other[name] - middle[name]), 2 * (one[name] - other[name])]
                accumulate_max(terms, np.min(np.abs(moves), axis=0) / scale)
    return found


def spread(at: Mapping[Q, Array], others: Sequence[Mapping[Q, Array]]) -> dict[Q, Array]:
    """Return how far others are off from the results ``at`` most, where they are finite: jumps count."""
    middle, *rest = _as_float64((at, *others))
    found = {name: np.zeros_like(value) for name, value in middle.items()}
    for other in rest:
        for name, largest in found.items():
            with np.errstate(invalid="ignore", over="ignore"):
                accumulate_max(largest, other[name] - middle[name])
    return found


def in_narrow(value: Array, spread: Array, dtype: str) -> Array:
    """Return the rounding error of numbers in a narrower dtype; their ``spread`` is that with its errors inside."""
    own, times = IN_SINGLE if dtype == "float32" else IN_HALF
    size = np.abs(np.nan_to_num(np.asarray(value, np.float64), nan=0.0, posinf=0.0, neginf=0.0))
    tails = np.where(spread > FEW_DIGITS * size, OF_TAILS, 1.0)
    return own * eps(dtype) * size + times * tails * spread + underflow(dtype)


def is_within(found: Array, expected: Array, bound: Array) -> bool:
    """Return whether all numbers are those expected, or off by no more than a bound."""
    with np.errstate(invalid="ignore", over="ignore"):
        off = np.abs(np.asarray(found, np.float64) - expected)
    return bool(np.all((off <= bound) | (found == expected) | (np.isnan(found) & np.isnan(expected))))


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
