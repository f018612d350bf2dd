"""Compare derivatives with numeric ones, which are estimated again where a derivative looks wrong."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from pullback.dtypes import Array
from pullback.gradcheck.number_comparison import Comparison
from pullback.gradcheck.numeric import COVERAGE, NO_DIGITS, Slopes, Status

# The first steps of the second estimate, and of the third ones, as fractions of that of the first.
SECOND_ESTIMATE, THIRD_ESTIMATES = 2.0**-3, (2.0**-6, 2.0**-9, 2.0**-12, 2.0**-15)
# The error, as a fraction of a slope, that leaves the slope one digit.
ONE_DIGIT = 0.5
AMPLIFIED = 4.0
"""How much of the noise of a value, divided by the smallest step, is in the derivative: √(1.75² + 1 + 2.67²) = 3.3."""


def estimate_twice(
    estimate: Callable[[Array], Slopes],
    scale: Array,
    analytic: Array,
    bar: Array,
    cheaper: Callable[[Array], Slopes] | None = None,
    *,
    nearest: Callable[[Array], Slopes] | None = None,
) -> Slopes:
    """Return the slopes; where a gradient looks wrong, estimate again with smaller steps.

    ``estimate(scale)`` returns the slopes whose largest steps are ``scale``; a ``cheaper`` one may come first. If the
    two estimates contradict each other, neither proves anything. A third one, ``nearest``, of functions that are exact
    to rounding, sees a wave that is finer than both, and many kinks that both cross. It knows only the noise that it
    sees, so it counts only if it agrees with the gradient.
    """
    first = (cheaper or estimate)(scale)
    doubtful = (usable_status(first) == Status.OK) & ~_agrees(analytic, first, bar)
    if not doubtful.any():
        return first
    nearer = estimate(scale * SECOND_ESTIMATE)
    status = np.where(doubtful & _differ(first, nearer), Status.CONTRADICTION, first.status)
    status = np.where(doubtful & (usable_status(nearer) != Status.OK), nearer.status, status)
    evaluations = first.evaluations + nearer.evaluations
    wrong = doubtful & (usable_status(replace(first, status=status)) == Status.OK)
    for fraction in THIRD_ESTIMATES if wrong.any() else ():
        if nearest is None:
            break
        third = nearest(scale * fraction)
        with np.errstate(invalid="ignore"):
            is_another = np.abs(third.value - first.value) > COVERAGE * third.error
        is_fine = (usable_status(third) == Status.OK) & _agrees(analytic, third, bar) & is_another
        status = np.where(wrong & is_fine & (third.value != 0), Status.CONTRADICTION, status)
        evaluations += third.evaluations
    return Slopes(first.value, first.error, status, evaluations)


def _agrees(analytic: Array, numeric: Slopes, bar: Array) -> Array:
    with np.errstate(invalid="ignore"):
        return np.abs(analytic - numeric.value) <= COVERAGE * numeric.error + bar


def _differ(one: Slopes, other: Slopes) -> Array:
    with np.errstate(invalid="ignore"):
        return np.abs(other.value - one.value) > COVERAGE * (other.error + one.error)


def add_slopes(
    comparison: Comparison, analytic: Array, numeric: Slopes, bar: Array, *, status: Array, **where: Any
) -> None:
    """Add derivatives to a comparison; ``bar`` is the rounding error of the analytic ones.

    Agreement proves something within the numeric bar alone, or within a hundredth of the numbers.
    """
    allowed = COVERAGE * numeric.error + bar
    with np.errstate(invalid="ignore"):
        size = np.maximum(np.abs(analytic), np.abs(numeric.value))
        is_near = np.abs(analytic - numeric.value) <= COVERAGE * numeric.error
        error = np.where(is_near, COVERAGE * numeric.error, np.where(allowed <= NO_DIGITS * size, allowed, np.inf))
        error = np.where(numeric.status == Status.NO_DIGITS, np.inf, error)
    comparison.add(analytic, numeric.value, allowed, status=status, error=error, **where)
    comparison.evaluations += numeric.evaluations


def scale_of(analytic: Array, numeric: Slopes, terms: Array | float) -> Array:
    """Return the scale of derivatives: of a function that does not move, that of the ``terms`` which may round to 0.

    That of others is the largest of them.
    """
    size = np.fmax(np.abs(analytic), np.abs(numeric.value))
    return np.where(numeric.value == 0, terms, np.max(size, where=np.isfinite(size), initial=0.0))


def usable_status(numeric: Slopes) -> Array:
    """Return the statuses, ``OK`` for a slope with one digit left, which can still expose a large error."""
    with np.errstate(invalid="ignore"):
        has_one = COVERAGE * numeric.error <= ONE_DIGIT * np.abs(numeric.value)
    return np.where((numeric.status == Status.NO_DIGITS) & has_one, Status.OK, numeric.status)


# If g is the derivative of φ at 0, the remainder φ(h) - φ(0) - g h is of order h²: halving h divides it by four, a
# rate of 2. If g is wrong, it is of order h, a rate of 1. This is the test of pyadjoint's ``taylor_test`` (Farrell et
# al., "Automated derivation of the adjoint of high-level transient finite element programs", 2013). The three one-
# sided differences, extrapolated to h = 0, also give the derivative with an error bar.
def slopes(values: Array, steps: Array, unit: float) -> Slopes:
    """Return the derivatives of P functions at 0 from ``values`` (4, P) at 0 and at ``steps`` (3,), each half the last.

    ``unit`` is the relative error of the values.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        first, second, third = (values[1:] - values[0]) / steps[:, None]
        before, after = 2 * second - first, 2 * third - second
        value = (4 * after - before) / 3
        noise = AMPLIFIED * unit * np.abs(values).max(axis=0) / steps[-1]
        error = np.maximum(np.abs(value - after), np.abs(after - before)) + noise
        status = np.where(error <= NO_DIGITS * np.abs(value), Status.OK, Status.NO_DIGITS)
    status = np.where(np.isfinite(values).all(axis=0), status, Status.NOT_FINITE)
    return Slopes(value, error, status.astype(object), values.size)


def rates(values: Array, steps: Array, analytic: Array, numeric: Slopes, bar: Array) -> list[str]:
    """Return the rates of the remainder of each function as text: ``2.00, 1.99``.

    Where a remainder is within the noise of the values and the ``bar`` of ``analytic``, there is no rate.
    """
    found: list[str] = []
    with np.errstate(all="ignore"):
        remainders = np.abs(values[1:] - values[0] - steps[:, None] * analytic)
        noise = (numeric.error + bar) * steps[-1]
        of_steps = np.log2(remainders[:-1] / remainders[1:])
    for k in range(values.shape[1]):
        if not np.isfinite(remainders[:, k]).all():
            found.append("unknown")
        elif remainders[-1, k] <= noise[k]:
            found.append("none: the remainder is within the error bar")
        else:
            found.append(", ".join(f"{rate:.2f}" for rate in of_steps[:, k]))
    return found
