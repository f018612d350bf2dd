"""The noise of an op: what remains of the changes of its results after a smooth fit.

An op that cancels inside has noise, and its results cannot be better: the checks allow for it. An op that rounds to
a narrower dtype inside has noise too, but its results could be better. So noise of that kind does not count.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from pullback.dtypes import Array

K = TypeVar("K")
Q = TypeVar("Q")

NO_ROOM: Mapping[Any, Array] = {}
# Noise is measured with changes of a few units in the last place, and at points on a line that are further apart, since
# a function that cancels inside is a staircase whose steps are wider than tiny changes.
DRAWS, FEW_ULPS = 3, (4.0, 16.0)
# The points, as fractions of the farthest one, which is this relative change. Evenly spaced points would miss the noise
# of a staircase whose steps divide their distance.
NODES, FARTHEST = np.array([-1.0, -0.7423, -0.4671, -0.1817, 0.0, 0.1373, 0.3929, 0.6751, 0.9157]), 2.0**-9
# Noise is on both sides of the point. If the residues of parabolas on one side are this factor smaller, the line has a
# kink, which no polynomial fits either.
SIDES, OF_SIDE, FALLS = (NODES <= 0, NODES >= 0), 2, 32.0
# If the residues of polynomials of so many successive degrees have the same size, within this factor, they are noise:
# those of a smooth function fall.
DEGREES, LIKE = 3, 4.0
# The standard deviation of numbers that are rounded to float32, float16 and bfloat16, relative to them, and the factors
# within which it is recognised where the function is known to narrow, and else; how many numbers it takes, and how much
# the larger half must exceed the smaller one.
OF_NARROWER = np.array([2.0**-23.5, 2.0**-10.5, 2.0**-7.5]) / 12**0.5
NOT_FAR, NEAR, ENOUGH, WIDER = 32.0, 3.0, 6, 1.5


def perturbations(
    leaves: Mapping[K, Array],
    units: Mapping[K, float],
    rng: np.random.Generator,
    room: Mapping[K, Array] = NO_ROOM,
) -> list[dict[K, Array]]:
    """Return the sets of leaves at which ``measure`` needs the results; ``units`` is the ``eps`` of each leaf.

    They are pairs that differ from the leaves by a few units in the last place in either direction, and the nodes of a
    line except the one that is 0. The numbers of a leaf that is in ``room`` move by no more than that.
    """
    ties = {name: np.unique(leaf, return_inverse=True) for name, leaf in leaves.items()}

    def change() -> dict[K, Array]:
        """Return changes in units in the last place, equal where the numbers are: ties stay ties, and 0 stays 0."""
        found: dict[K, Array] = {}
        for name, (distinct, indices) in ties.items():
            sizes = rng.uniform(*FEW_ULPS, distinct.shape) * rng.choice([-1.0, 1.0], distinct.shape)
            found[name] = sizes[indices.ravel()].reshape(leaves[name].shape)
        return found

    few = [{name: ulps * units[name] for name, ulps in change().items()} for _ in range(DRAWS)]
    line = {name: ulps * (FARTHEST / FEW_ULPS[1]) for name, ulps in change().items()}
    for changes in (*few, line):
        for name, most in room.items():
            with np.errstate(invalid="ignore", divide="ignore"):
                limit = most / np.abs(leaves[name])  # NaN, which is no limit, where both are 0
                changes[name] = np.sign(changes[name]) * np.fmin(np.abs(changes[name]), limit)
    pairs = [scaled(leaves, each, sign) for each in few for sign in (1.0, -1.0)]
    return [*pairs, *(scaled(leaves, line, float(t)) for t in NODES if t)]


def measure(
    values: Sequence[Mapping[Q, Array]],
    at: Mapping[Q, Array],
    *,
    may_be_narrower: bool = True,
    narrows: Callable[[], bool] = lambda: False,
) -> dict[Q, Array]:
    """Return the size of the noise of each number of each result.

    ``values`` are the results at the ``perturbations``, and ``at`` those at the leaves themselves, all in float64.
    Noise like that of a narrower dtype counts unless it ``may_be_narrower``; ``narrows`` returns whether the function
    is known to round to one.
    """
    few, line = values[: 2 * DRAWS], values[2 * DRAWS :]
    zero, found = int(np.argmin(np.abs(NODES))), dict[Q, Array]()
    for name, middle in at.items():
        others = [other[name] for other in line]
        with np.errstate(invalid="ignore", over="ignore"):
            noise = np.zeros_like(middle)
            accumulate_max(noise, on_line(np.stack([*others[:zero], middle, *others[zero:]])))
            if may_be_narrower and _is_of_narrower_dtype(noise, middle, narrows):
                noise = np.zeros_like(middle)
            for right, left in zip(few[::2], few[1::2], strict=True):
                accumulate_max(noise, right[name] - 2 * middle + left[name])
            found[name] = noise
    return found


def scaled(leaves: Mapping[K, Array], changes: Mapping[K, Array], factor: float = 1.0) -> dict[K, Array]:
    """Return the leaves, each number changed by ``factor`` times this fraction of itself."""
    with np.errstate(invalid="ignore", over="ignore"):
        return {name: (leaf * (1 + factor * changes[name])).astype(leaf.dtype) for name, leaf in leaves.items()}


def accumulate_max(largest: Array, change: Array) -> None:
    """Raise the largest magnitudes to those of a change, in place, where it is finite."""
    np.fmax(largest, np.nan_to_num(np.abs(change), nan=0.0, posinf=0.0), out=largest)


def on_line(values: Array) -> Array:
    """Return the standard deviation of the noise of values at the nodes, in axis 0; 0 where there is none.

    The residue of the polynomial of best fit falls with its degree until nothing but noise is left. This is the idea
    of Moré and Wild, "Estimating computational noise" (2011), who take differences of evenly spaced values.
    """
    flat = values.reshape(len(NODES), -1)
    sizes = _residues(NODES, flat)
    noise: Array = np.zeros_like(sizes[0])
    for degree in reversed(range(1, len(sizes) - DEGREES + 1)):
        some = sizes[degree : degree + DEGREES]
        noise = np.where(some.max(axis=0) <= LIKE * some.min(axis=0), some[0], noise)
    of_sides = [_residues(NODES[side], flat[side])[OF_SIDE] for side in SIDES]
    noise[FALLS * np.fmin(*of_sides) < noise] = 0.0
    return noise.reshape(values.shape[1:])


def _residues(nodes: Array, values: Array) -> Array:
    """Return the standard deviations of the residues of the polynomials of best fit, of degrees 0, 1, ... in axis 0."""
    basis: Array = np.linalg.qr(np.vander(nodes, increasing=True))[0]
    parts = basis.T @ values
    squares = np.cumsum(parts[:0:-1] ** 2, axis=0)[::-1]
    sizes: Array = np.sqrt(squares / np.arange(len(squares), 0, -1)[:, None])
    return sizes


def _is_of_narrower_dtype(noise: Array, value: Array, narrows: Callable[[], bool]) -> bool:
    """Return whether noise is that of numbers rounded to a dtype: of its relative size, and larger in larger numbers.

    The noise of a sum that cancels is as large in small results as in large ones. A function that ``narrows`` may do
    something with the rounded numbers, so that the noise of its results has another size.
    """
    known = (noise > 0) & (value != 0) & np.isfinite(value)
    if known.sum() < max(ENOUGH, noise.size / 2):
        return False
    size, noise = np.abs(value[known]), noise[known]
    is_large = size > np.median(size)
    ratios = np.median(noise / size) / OF_NARROWER
    if ((ratios >= 1 / NOT_FAR) & (ratios <= NOT_FAR)).any() and narrows():
        return True
    if not is_large.any() or not ((ratios >= 1 / NEAR) & (ratios <= NEAR)).any():
        return False
    sizes, noises = (float(np.median(x[is_large]) / np.median(x[~is_large])) for x in (size, noise))
    return sizes >= WIDER and noises >= sizes**0.5
