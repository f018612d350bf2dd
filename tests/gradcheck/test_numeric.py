"""Numeric derivatives against closed forms: accurate, with error bars that cover the error and are narrow."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import special

from pullback.gradcheck.numeric import COVERAGE, Status, slopes
from tests.gradcheck.functions import BARS, CONFIDENTLY_WRONG, FUNCTIONS, UNIT, Function, scale

CASES = [pytest.param(function, x, id=f"{name}-{x:g}") for name, function in FUNCTIONS.items() for x in function.at]


def estimate(f: Callable, x: float):
    with np.errstate(all="ignore"):
        return slopes(lambda t: f(x + t), np.array([scale(x)]), UNIT)


def bars_off(function: Function, x: float) -> float:
    slope = estimate(function.f, x)
    assert slope.status[0] == Status.OK
    error = abs(slope.value[0] - function.slope(np.float64(x)))
    return error / slope.error[0] if error else 0.0


@pytest.mark.parametrize(("function", "x"), CASES)
def test_no_estimate_is_confidently_wrong(function: Function, x: float) -> None:
    assert bars_off(function, x) < CONFIDENTLY_WRONG


def test_the_error_bars_cover_the_errors() -> None:
    off = np.array([bars_off(function, x) for function in FUNCTIONS.values() for x in function.at])
    assert len(FUNCTIONS) == 40
    assert (off <= BARS).mean() >= 0.95


def test_the_error_bars_cover_the_errors_elsewhere_too() -> None:
    """Check many more points than those used to choose the constants, as the smallest of many bars is too short.

    An error of a few units in the last place may be that of the closed form.
    """
    rng, off = np.random.default_rng(0), []
    for function in FUNCTIONS.values():
        xs = np.concatenate([x * rng.uniform(0.5, 1.5, 50) for x in function.at if x])
        with np.errstate(all="ignore"):
            found = slopes(lambda t, xs=xs, f=function.f: f(xs + t), np.array([scale(x) for x in xs]), UNIT)
            truth = function.slope(xs)
        error = np.maximum(np.abs(found.value - truth) - 4 * UNIT * np.abs(truth), 0)
        off.append((error / np.maximum(found.error, np.finfo(float).tiny))[found.status == Status.OK])
    together = np.concatenate(off)
    assert len(together) > 3500
    assert together.max() <= BARS


@pytest.mark.parametrize("distance", [1e-9, 1e-11, 1e-13])
def test_a_pole_between_the_smallest_steps_has_no_smooth_slope_beside_it(distance: float) -> None:
    found = slopes(lambda t: 1 / (t - distance), np.array([0.25]), UNIT)
    is_covered = abs(found.value[0] + distance**-2) <= BARS * found.error[0]
    assert found.status[0] in (Status.JUMP, Status.NO_DIGITS) or is_covered


def test_the_error_bars_are_narrow() -> None:
    """A wide bar covers every error and proves nothing: half of the bars leave twelve digits."""
    pairs = [(estimate(each.f, x), each.slope(np.float64(x))) for each in FUNCTIONS.values() for x in each.at]
    relative = [slope.error[0] / abs(truth) for slope, truth in pairs if truth]
    assert np.median(relative) < 1e-12
    assert np.max(relative) < 0.02


def test_a_wave_that_large_steps_miss_is_found_by_small_steps() -> None:
    """The wave is 0 at every multiple of 1/64, so the first steps all agree on the slope of the line."""
    found = estimate(lambda x: x + np.sin(2 * np.pi * 64 * x), 0.0)
    assert found.status[0] == Status.OK
    assert abs(found.value[0] - (1 + 2 * np.pi * 64)) <= BARS * found.error[0]


@pytest.mark.parametrize("scale", [2.0**e for e in range(-8, 4)])
def test_a_product_of_waves_has_no_slope_that_some_steps_agree_on(scale: float) -> None:
    """The slope is 101²; at a few steps, the waves agree on 101."""

    def waves(x):
        return (x + 1e-7 * np.sin(1e9 * x)) * (np.cos(x) + 100 * np.cos(1e9 * x))

    found = slopes(waves, np.array([scale]), 2.0**-52)
    assert found.status[0] != Status.OK or abs(found.value[0] - 101**2) <= BARS * found.error[0]


STATUSES = [
    pytest.param(np.abs, 0.0, Status.KINK, id="abs"),
    pytest.param(lambda x: np.maximum(x, 0), 0.0, Status.KINK, id="relu"),
    pytest.param(lambda x: np.sin(x) + 1e-3 * np.abs(x), 0.0, Status.KINK, id="a slight kink"),
    pytest.param(np.sign, 0.0, Status.JUMP, id="sign"),
    pytest.param(np.floor, 2.0, Status.JUMP, id="floor"),
    pytest.param(lambda x: np.cos(x) + 1e-6 * np.sign(x), 0.0, Status.JUMP, id="a slight jump"),
    pytest.param(np.log, 0.0, Status.NOT_FINITE, id="log"),
    pytest.param(np.sqrt, 0.0, Status.NOT_FINITE, id="root"),
]


@pytest.mark.parametrize(("f", "x", "status"), STATUSES)
def test_an_estimate_reports_that_there_is_no_derivative(f, x, status) -> None:
    assert estimate(f, x).status[0] == status


def test_noise_leaves_no_digits() -> None:
    rng = np.random.default_rng(0)
    found = slopes(lambda t: 1e-3 * t + rng.normal(size=t.shape), np.full(20, 0.25), UNIT)
    assert (found.status != Status.OK).all()


@pytest.mark.parametrize("x", [-8.4, -8.7, -9.3])
def test_a_term_that_rounds_to_a_constant_does_not_show_a_slope_of_0(x: float) -> None:
    """1 + erf is 0 there, and so is gelu, exactly; its slope is not."""
    density = math.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    found = slopes(
        lambda t: (x + t) * (1 + special.erf((x + t) / 2**0.5)) / 2, np.array([2.0**-6]), UNIT, 16 * UNIT * -x
    )
    assert abs(found.value[0] - x * density) <= COVERAGE * found.error[0]


def test_many_functions_are_estimated_as_each_alone() -> None:
    xs = np.array([0.5, 1.0, 3.0])
    together = slopes(lambda t: np.exp(xs + t), np.full(3, 0.125), UNIT)
    for i, x in enumerate(xs):
        alone = slopes(lambda t, x=x: np.exp(x + t), np.array([0.125]), UNIT)
        assert alone.value[0] == together.value[i]
        assert alone.error[0] == together.error[i]
    assert together.evaluations == 3 * alone.evaluations


def test_a_derivative_that_overflows_is_not_taken_for_a_finite_one() -> None:
    # The differences of values near 1e305 overflow where the steps are small enough for this wave.
    found = slopes(lambda t: 1e305 * np.cos(1e5 * (1 + t)), np.array([0.25]), 2.0**-52)
    assert np.isinf(found.value).all()
