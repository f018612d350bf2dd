"""Compare derivatives with numeric ones, which are estimated again where a derivative looks wrong."""

from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.dtypes import Array
from pullback.gradcheck.number_comparison import Comparison
from pullback.gradcheck.numeric import COVERAGE, NO_DIGITS, Slopes, Status

# The first step of the second estimate, as a fraction of that of the first.
SECOND_ESTIMATE = 1 / 8
# The error, as a fraction of a slope, that leaves the slope one digit.
ONE_DIGIT = 0.5


def estimate_twice(
    estimate: Callable[[Array], Slopes],
    scale: Array,
    analytic: Array,
    bar: Array,
    cheaper: Callable[[Array], Slopes] | None = None,
) -> Slopes:
    """Return the slopes; where a gradient looks wrong, estimate again with smaller steps.

    ``estimate(scale)`` returns the slopes whose largest steps are ``scale``; a ``cheaper`` one may come first. If the
    two estimates contradict each other, neither proves anything.
    """
    first = (cheaper or estimate)(scale)
    with np.errstate(invalid="ignore"):
        right = np.abs(analytic - first.value) <= COVERAGE * first.error + bar
    doubtful = (usable_status(first) == Status.OK) & ~right
    if not doubtful.any():
        return first
    nearer = estimate(scale * SECOND_ESTIMATE)
    with np.errstate(invalid="ignore"):
        apart = np.abs(nearer.value - first.value) > COVERAGE * (nearer.error + first.error)
    status = np.where(doubtful & apart, Status.CONTRADICTION, first.status)
    status = np.where(doubtful & (usable_status(nearer) != Status.OK), nearer.status, status)
    return Slopes(first.value, first.error, status, first.evaluations + nearer.evaluations)


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
