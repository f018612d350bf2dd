"""Estimates of the rounding errors of results, by comparison with other evaluations at the same point.

Evaluations in the op's widest dtype run with random errors inside the op, which are ``AMPLIFIED`` times as large as
roundings, so that these do not hide them: the spread of a few over ``AMPLIFIED`` estimates the error. A number that no
run moves is exact. If the dtype of the results is narrower, their error is the distance from the widest one; one
evaluation shows that, and what the widest dtype does not know itself. Where an op computes in yet another narrow dtype,
both have its errors, and the spread counts too.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from app.autodiff.absent import Absent
from app.autodiff.compared import mixes_dtypes
from app.autodiff.derivatives import forward
from app.autodiff.point import Arrays, Errors, Point
from app.autodiff.widest import in_widest, widest
from ops import Array
from pullback.gradcheck.floats import eps, tiny

# How many runs have random errors: fewer where they take long, from so many multiply-adds of a forward pass.
DRAWS, DRAWS_OF_LONG, LONG = 4, 2, 1 << 16
# The standard deviation of the rounding of one result of a kernel, in units of eps.
ROUNDING = 0.35
AMPLIFIED = 8.0
# How much larger than the difference from a wider dtype an estimate is.
MARGIN = 1 / 16
# How many deviations an estimate is, by the number of runs that show one: quantiles of Student's t of 95 %, and a
# twentieth. Far fewer than 5 % of errors are larger, because most roundings are smaller than ROUNDING.
DEVIATIONS = {DRAWS: 3.0, DRAWS_OF_LONG: 4.5}


def others(point: Point, directions: Sequence[Arrays]) -> list[Point]:
    """Return the points whose results show the error of those at this one.

    The random errors follow from the inputs and the ``directions``, so that equal requests have equal estimates.
    """
    digest = hashlib.blake2b(digest_size=6)
    for named in (point.inputs, *directions):
        for x in named.values():
            digest.update(x.tobytes())
    first, scale = int.from_bytes(digest.digest(), "big"), AMPLIFIED * ROUNDING
    if is_narrow := eps(widest(point.spec)) < eps(point.spec.dtype):
        wide = in_widest(point)
        of = forward(wide)
        if not mixes_dtypes(of.program, of.leaves, wide.spec.device):
            return [replace(wide, spec=replace(wide.spec, errors=Errors(scale, first, is_joint=True, is_needed=False)))]
        point = wide
    errors = [
        Errors(scale, first + i, is_needed=not is_narrow) for i in range(DRAWS if point.cost < LONG else DRAWS_OF_LONG)
    ]
    return [replace(point, spec=replace(point.spec, errors=each)) for each in errors]


def estimate(y: Array, others: Sequence[Array]) -> Array:
    """Return the estimated error of each number of a result; ``others`` are the results at the points of ``others``.

    It is infinite for a number that is not finite. Its dtype is that of the result, and float32 for half precision.
    It is 0 for an exact number alone, not where it underflows.
    """
    dtype = np.float64 if y.dtype == np.float64 else np.float32
    with np.errstate(invalid="ignore", over="ignore"):
        off = [np.abs(np.subtract(other, y, dtype=np.float64)) for other in others]
        if len(off) == 1:
            # The other is off too, by far less.
            error = off[0] * (1 + MARGIN)
        elif others[0].dtype != y.dtype:
            error = np.abs(np.mean(others, axis=0) - y) * (1 + MARGIN)
            error += DEVIATIONS[len(others)] * np.std(others, axis=0) / AMPLIFIED
        else:
            largest = np.maximum(np.max(off, axis=0), tiny("float64"))  # whose square may overflow
            spread = largest * np.sqrt(np.mean(np.square(off / largest), axis=0)) / AMPLIFIED
            error = np.where(np.any(off, axis=0), DEVIATIONS[len(others)] * spread + unit(y) / 2, 0.0)
        error = np.asarray(error)
        if not np.isfinite(error.sum()):
            error = np.where(np.isfinite(y) & ~np.isnan(error), error, np.inf)
        rounded = error.astype(dtype)
        return np.where((error > 0) & (rounded == 0), np.finfo(dtype).smallest_subnormal, rounded)


def unit(y: Array) -> Array:
    """Return the distance of each number to the next one in its dtype."""
    dtype = y.dtype.name
    _, exponents = np.frexp(np.abs(y.astype(np.float64)))
    return np.maximum(np.ldexp(eps(dtype), exponents - 1), eps(dtype) * tiny(dtype))


def uncertainties(tree: Any, others: Sequence[Any]) -> Any:
    """Return the estimate of each array in a tree of results; ``others`` are the trees at the points of ``others``."""
    if isinstance(tree, dict):
        named = cast("dict[str, Any]", tree)
        return {name: uncertainties(value, [other[name] for other in others]) for name, value in named.items()}
    if isinstance(tree, list):
        listed = cast("list[Any]", tree)
        return [uncertainties(value, [other[i] for other in others]) for i, value in enumerate(listed)]
    if isinstance(tree, Absent):
        return tree
    if tree.dtype.kind in "iub":
        return Absent.WHOLE
    return others[0] if isinstance(others[0], Absent) else estimate(tree, others)
