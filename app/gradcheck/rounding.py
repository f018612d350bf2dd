"""How far a right answer may be off, because its dtype rounds.

The bound is that of a *mixed stable* algorithm: its answer is the exact one for inputs that are off by a few units of
rounding, and is itself off by a few (Higham, "Accuracy and Stability of Numerical Algorithms", 1.5). So an answer y
with sensitivity L to a relative change of the inputs may be off by ``C eps (max(1, |y|) + L)``, where 1 stands for the
constants that an op computes with, as 1 + eˣ does, times the directions that they are multiplied by.
"""

import math
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar, cast

import ml_dtypes
import numpy as np

from ops import Array

K = TypeVar("K", bound=Hashable)
Q = TypeVar("Q", bound=Hashable)

# The roundings that one element of an answer goes through: no op has more than a dozen in a row, and errors of either
# sign add to less than their sum.
ROUNDINGS = 8
# A relative step for the sensitivity: small enough to be local, large enough for a difference of float64 numbers.
STEP = 2.0**-20
STEP_IN_NARROW = 2.0**-8
DRAWS = 3


def eps(dtype: str) -> float:
    """Return the relative distance of neighbouring numbers."""
    return float(_limits(dtype).eps)


def tiny(dtype: str) -> float:
    """Return the least normal number: kernels flush what is below, simplified graphs keep it."""
    return float(_limits(dtype).smallest_normal)


def units(
    answers: Callable[[Mapping[K, Array]], Mapping[Q, Array]],
    leaves: Mapping[K, Array],
    rng: np.random.Generator,
    *,
    elementwise: bool,
    ones: Callable[[Q], float],
) -> dict[Q, Array]:
    """Return for each number of each answer by how many ``eps`` of its dtype it may be off.

    The sensitivity is that to random relative changes of the leaves: element by element for an elementwise op, else
    relative to the largest element of each leaf. A jump counts for nothing: half the step jumps as far as the whole,
    and it is the part of the change which is halved that counts. Sums over n elements add n roundings. ``ones`` says
    for each answer what the constants of an op, which are about 1, have become: it is linear in its directions.
    """
    step = STEP if all(leaf.dtype.itemsize >= np.float32().itemsize for leaf in leaves.values()) else STEP_IN_NARROW
    at = {name: np.asarray(value, np.float64) for name, value in answers(leaves).items()}
    largest = {name: np.zeros_like(value) for name, value in at.items()}
    for _ in range(DRAWS):
        signs = {name: rng.choice([-1.0, 1.0], leaf.shape) for name, leaf in leaves.items()}
        whole, half = (answers(_moved(leaves, signs, size, elementwise)) for size in (step, step / 2))
        for name in at:
            with np.errstate(invalid="ignore", over="ignore"):
                change = 2 * np.abs(np.asarray(whole[name], np.float64) - np.asarray(half[name], np.float64)) / step
            largest[name] = np.fmax(largest[name], np.nan_to_num(change, nan=0.0, posinf=0.0))
    terms = 1 if elementwise else max((max(leaf.shape, default=1) for leaf in leaves.values()), default=1)
    if not elementwise:
        # That one number does not feel the few changes that are drawn is chance, where its neighbours do.
        largest = {name: np.fmax(change, _mean_square_root(change)) for name, change in largest.items()}
    sizes = {name: np.maximum(ones(name), _size(value, elementwise)) for name, value in at.items()}
    return {name: ROUNDINGS * terms * (size + largest[name]) for name, size in sizes.items()}


def ulps(difference: float, of: float, dtype: str) -> float:
    """Return a difference in units in the last place of a number of ``dtype``."""
    if not np.isfinite(of):
        return difference
    return difference / (2.0 ** math.floor(math.log2(max(abs(of), tiny(dtype)))) * eps(dtype))


def _limits(dtype: str) -> Any:
    # Its type is a union of NumPy's class and one of its own, which has no stub.
    limits: Any = cast(Any, ml_dtypes).finfo(dtype)
    return limits


def _mean_square_root(values: Array) -> float:
    with np.errstate(over="ignore"):
        return float(np.sqrt(np.mean(values**2))) if values.size else 0.0


def _size(value: Array, elementwise: bool) -> Any:
    finite = np.abs(np.nan_to_num(value, nan=0.0, posinf=0.0, neginf=0.0))
    return finite if elementwise else finite.max(initial=0.0)


def _moved(leaves: Mapping[K, Array], signs: Mapping[K, Array], step: float, elementwise: bool) -> dict[K, Array]:
    wide = {name: np.asarray(leaf, np.float64) for name, leaf in leaves.items()}
    sizes = {name: np.abs(leaf) if elementwise else np.abs(leaf).max(initial=0) for name, leaf in wide.items()}
    with np.errstate(invalid="ignore", over="ignore"):
        moved = {name: np.asarray(leaf + step * sizes[name] * signs[name]) for name, leaf in wide.items()}
        return {name: leaf.astype(leaves[name].dtype) for name, leaf in moved.items()}
