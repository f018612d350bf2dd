"""Derivatives of functions of which only four values are known, and the rates of their Taylor remainders.

If g is the derivative of φ at 0, the remainder φ(h) - φ(0) - g h is of order h²: halving h divides it by four, a rate
of 2. If g is wrong, it is of order h, a rate of 1. This is the test of pyadjoint's ``taylor_test`` (Farrell et al.,
"Automated derivation of the adjoint of high-level transient finite element programs", 2013). The three one-sided
differences, extrapolated to h = 0, also give the derivative with an error bar.
"""

import numpy as np

from pullback.dtypes import Array
from pullback.gradcheck.numeric import NO_DIGITS, Slopes, Status

AMPLIFIED = 4.0
"""How much of the noise of a value, divided by the smallest step, is in the derivative: √(1.75² + 1 + 2.67²) = 3.3."""


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
