"""Bounds of the rounding error of a correct result.

The bound is that of a *mixed stable* algorithm: its result is within a few units of rounding of the exact result for
inputs that are off by a few units of rounding (Higham, "Accuracy and Stability of Numerical Algorithms", 1.5). So a
result y with sensitivity L to a relative change of the inputs may be off by ``C eps (max(1, |y|) + L)``, where 1 stands
for the constants in an op's formula, as in 1 + eˣ, times the directions that multiply them. An op that cancels inside
rounds more than that; its *noise* is measured, and added.
"""

import math
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar, cast

import ml_dtypes
import numpy as np

from ops import Array

K = TypeVar("K", bound=Hashable)
Q = TypeVar("Q", bound=Hashable)

# The roundings behind one element of a result: no op has more than a dozen in a row, and since their errors have either
# sign, they add up to less than their sum.
ROUNDINGS = 8
# The relative step that measures the sensitivity: small enough to be local, large enough for a difference of float64
# numbers.
STEP = 2.0**-20
STEP_IN_NARROW = 2.0**-8
DRAWS = 3
# Noise is what a change of the leaves by a few units in the last place leaves behind, beyond its linear part. The bound
# covers this many times the largest one that was seen.
LEAST_ULPS, MOST_ULPS, NOISES = 4.0, 16.0, 4.0


def eps(dtype: str) -> float:
    """Return the relative distance between neighbouring numbers of a dtype."""
    return float(_limits(dtype).eps)


def tiny(dtype: str) -> float:
    """Return the smallest normal number: kernels flush smaller ones to 0, simplified graphs keep them."""
    return float(_limits(dtype).smallest_normal)


def units(
    evaluate: Callable[[Mapping[K, Array]], Mapping[Q, Array]],
    leaves: Mapping[K, Array],
    rng: np.random.Generator,
    *,
    elementwise: bool,
    ones: Callable[[Q], float],
) -> dict[Q, Array]:
    """Return the rounding error that each number of each result may have, in units of ``eps`` of its dtype.

    The sensitivity is measured with random relative changes of the leaves: element by element for an elementwise op,
    else relative to the largest element of each leaf. Only the part of a change that halves with the step counts, so a
    jump, which is as large at half the step, does not. Sums over n elements add n roundings. ``ones`` returns the size
    of the op's constants, which are about 1, in each result, which is linear in its directions. The measured noise is
    added.
    """
    step = STEP if all(leaf.dtype.itemsize >= np.float32().itemsize for leaf in leaves.values()) else STEP_IN_NARROW
    results = evaluate(leaves)
    at = {name: np.asarray(value, np.float64) for name, value in results.items()}
    largest = {name: np.zeros_like(value) for name, value in at.items()}
    for _ in range(DRAWS):
        signs = {name: rng.choice([-1.0, 1.0], leaf.shape) for name, leaf in leaves.items()}
        whole, half = (evaluate(_perturb(leaves, signs, size, elementwise)) for size in (step, step / 2))
        for name in at:
            with np.errstate(invalid="ignore", over="ignore"):
                change = 2 * np.abs(np.asarray(whole[name], np.float64) - np.asarray(half[name], np.float64)) / step
            largest[name] = np.fmax(largest[name], np.nan_to_num(change, nan=0.0, posinf=0.0))
    terms = 1 if elementwise else max((max(leaf.shape, default=1) for leaf in leaves.values()), default=1)
    if not elementwise:
        # A number that the few random changes do not move, while they move its neighbours, is unmoved by chance.
        largest = {name: np.fmax(change, _mean_square_root(change)) for name, change in largest.items()}
    sizes = {name: np.maximum(ones(name), _size(value, elementwise)) for name, value in at.items()}
    of_stable = {name: size + largest[name] for name, size in sizes.items()}
    noise = _noise(evaluate, leaves, at, rng)
    found: dict[Q, Array] = {}
    for name, stable in of_stable.items():
        unit = eps(str(results[name].dtype)) if results[name].dtype.kind not in "iub" else 1.0
        # What changes by more than this has jumped: it is no noise.
        is_noise = noise[name] <= unit**0.25 * stable
        found[name] = ROUNDINGS * terms * stable + np.where(is_noise, NOISES * noise[name] / unit, 0.0)
    return found


def _noise(
    evaluate: Callable[[Mapping[K, Array]], Mapping[Q, Array]],
    leaves: Mapping[K, Array],
    at: Mapping[Q, Array],
    rng: np.random.Generator,
) -> dict[Q, Array]:
    """Return the largest f(x + d) - 2 f(x) + f(x - d) of a few random d of a few units in the last place.

    A smooth f contributes nothing at such a d. Numbers that are equal stay equal, and 0 stays 0.
    """
    largest = {name: np.zeros_like(value) for name, value in at.items()}
    for _ in range(DRAWS):
        changes = {name: _few_ulps(leaf, rng) for name, leaf in leaves.items()}
        with np.errstate(invalid="ignore", over="ignore"):
            right, left = (
                evaluate({name: (leaf + sign * changes[name]).astype(leaf.dtype) for name, leaf in leaves.items()})
                for sign in (1, -1)
            )
            for name, middle in at.items():
                apart = np.asarray(right[name], np.float64) - 2 * middle + np.asarray(left[name], np.float64)
                largest[name] = np.fmax(largest[name], np.nan_to_num(np.abs(apart), nan=0.0, posinf=0.0))
    return largest


def _few_ulps(leaf: Array, rng: np.random.Generator) -> Array:
    distinct, places = np.unique(leaf, return_inverse=True)
    sizes = rng.uniform(LEAST_ULPS, MOST_ULPS, distinct.shape) * rng.choice([-1.0, 1.0], distinct.shape)
    return np.asarray(leaf, np.float64) * sizes[places].reshape(leaf.shape) * eps(str(leaf.dtype))


def ulps(difference: float, of: float, dtype: str) -> float:
    """Return a difference in units in the last place of the number ``of`` in ``dtype``."""
    if not np.isfinite(of):
        return difference
    return difference / (2.0 ** math.floor(math.log2(max(abs(of), tiny(dtype)))) * eps(dtype))


def _limits(dtype: str) -> Any:
    # Its type is a union of NumPy's class and one of ml_dtypes, which has no stub.
    limits: Any = cast(Any, ml_dtypes).finfo(dtype)
    return limits


def _mean_square_root(values: Array) -> float:
    with np.errstate(over="ignore"):
        return float(np.sqrt(np.mean(values**2))) if values.size else 0.0


def _size(value: Array, elementwise: bool) -> Any:
    finite = np.abs(np.nan_to_num(value, nan=0.0, posinf=0.0, neginf=0.0))
    return finite if elementwise else finite.max(initial=0.0)


def _perturb(leaves: Mapping[K, Array], signs: Mapping[K, Array], step: float, elementwise: bool) -> dict[K, Array]:
    wide = {name: np.asarray(leaf, np.float64) for name, leaf in leaves.items()}
    sizes = {name: np.abs(leaf) if elementwise else np.abs(leaf).max(initial=0) for name, leaf in wide.items()}
    with np.errstate(invalid="ignore", over="ignore"):
        moved = {name: np.asarray(leaf + step * sizes[name] * signs[name]) for name, leaf in wide.items()}
        return {name: leaf.astype(leaves[name].dtype) for name, leaf in moved.items()}
