"""Numeric derivatives against closed forms: near enough, honest about how near, and never confidently wrong."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from scipy import special

from app.gradcheck.numeric import Trouble, slopes

UNIT = 2.0**-52
# Nine in ten and more are within three error bars, and none is a hundred of them away.
BARS, CONFIDENTLY_WRONG = 3.0, 100.0


class Function(NamedTuple):
    """A function, its derivative, and where both are compared."""

    f: Callable
    slope: Callable
    at: tuple[float, ...]


FUNCTIONS = {
    "constant": Function(lambda x: 0 * x + 3, lambda x: 0 * x, (0.0, 1.0)),
    "line": Function(lambda x: 3 * x + 1e8, lambda x: 0 * x + 3, (0.0, 1.0)),
    "square": Function(np.square, lambda x: 2 * x, (0.0, 1.0, 5000.0)),
    "cube": Function(lambda x: x**3, lambda x: 3 * x * x, (0.0, 2.0, -1e3)),
    "seventh": Function(lambda x: (x - 1) ** 7, lambda x: 7 * (x - 1) ** 6, (1.0, 1.1, 2.0)),
    "reciprocal": Function(lambda x: 1 / x, lambda x: -1 / x**2, (1e-3, 1.0, 1e3)),
    "root": Function(np.sqrt, lambda x: 0.5 / np.sqrt(x), (1e-8, 1.0, 4.0)),
    "cube root": Function(np.cbrt, lambda x: np.cbrt(x) ** -2 / 3, (1e-6, 1.0, -8.0)),
    "exp": Function(np.exp, np.exp, (0.0, 1.0, 80.0, -30.0)),
    "expm1": Function(np.expm1, np.exp, (0.0, 1e-5, 1.0)),
    "exp2": Function(np.exp2, lambda x: np.log(2) * np.exp2(x), (0.0, 10.0)),
    "expm1 ratio": Function(lambda x: np.expm1(x) / x, lambda x: (x * np.exp(x) - np.expm1(x)) / x**2, (1e-2, 1.0)),
    "log": Function(np.log, lambda x: 1 / x, (1e-4, 1.0, 1e3)),
    "log1p": Function(np.log1p, lambda x: 1 / (1 + x), (0.0, 1e-5, 9.0)),
    "softplus": Function(lambda x: np.logaddexp(0, x), special.expit, (-40.0, 0.0, 3.0, 100.0)),
    "logistic": Function(special.expit, lambda x: special.expit(x) * special.expit(-x), (-20.0, 0.0, 2.0)),
    "sin": Function(np.sin, np.cos, (0.0, 1.0, 1e3)),
    "cos": Function(np.cos, lambda x: -np.sin(x), (0.0, 1.0)),
    "tan": Function(np.tan, lambda x: np.cos(x) ** -2, (0.0, 1.5)),
    "fast sin": Function(lambda x: np.sin(1000 * x), lambda x: 1000 * np.cos(1000 * x), (0.3, 1.0, 2.0)),
    "chirp": Function(lambda x: np.sin(x * x), lambda x: 2 * x * np.cos(x * x), (1.0, 30.0)),
    "sinc": Function(lambda x: np.sin(x) / x, lambda x: (x * np.cos(x) - np.sin(x)) / x**2, (0.5, 3.0)),
    "arcsin": Function(np.arcsin, lambda x: 1 / np.sqrt(1 - x * x), (0.0, 0.5)),
    "arctan": Function(lambda x: np.arctan(100 * x), lambda x: 100 / (1 + 1e4 * x * x), (0.0, 0.01, 1.0)),
    "sinh": Function(np.sinh, np.cosh, (0.0, 1.0, 30.0)),
    "cosh": Function(np.cosh, np.sinh, (0.0, 1.0)),
    "tanh": Function(np.tanh, lambda x: np.cosh(x) ** -2, (0.0, 1.0, 8.0, 15.0)),
    "arcsinh": Function(np.arcsinh, lambda x: 1 / np.sqrt(1 + x * x), (0.0, 100.0)),
    "erf": Function(special.erf, lambda x: 2 / np.sqrt(np.pi) * np.exp(-x * x), (0.0, 1.0, 4.0)),
    "narrow gauss": Function(
        lambda x: np.exp(-1e4 * x * x), lambda x: -2e4 * x * np.exp(-1e4 * x * x), (0.0, 0.01, 0.05)
    ),
    "runge": Function(lambda x: 1 / (1 + 25 * x * x), lambda x: -50 * x / (1 + 25 * x * x) ** 2, (0.0, 0.2, 1.0)),
    "gammaln": Function(special.gammaln, special.digamma, (0.1, 1.5, 30.0)),
    "bessel": Function(special.j0, lambda x: -special.j1(x), (0.0, 2.0, 50.0)),
    "swish": Function(
        lambda x: x * special.expit(x),
        lambda x: special.expit(x) * (1 + x * special.expit(-x)),
        (-5.0, 0.0, 2.0),
    ),
    "power": Function(lambda x: x**2.5, lambda x: 2.5 * x**1.5, (1e-3, 2.0)),
    "x to the x": Function(lambda x: x**x, lambda x: x**x * (np.log(x) + 1), (0.5, 3.0)),
    "abs beside its kink": Function(np.abs, np.sign, (1e-3, -1.0)),
    "relu beside its kink": Function(lambda x: np.maximum(x, 0), lambda x: 1.0 * (x > 0), (0.5, -1e-6)),
    "step beside its jump": Function(np.sign, lambda x: 0 * x, (1.0, -1e-2)),
    "cancelling": Function(lambda x: (1e6 + x) - 1e6, lambda x: 0 * x + 1, (0.0, 1.0)),
}


def scale(x: float) -> float:
    return 2.0 ** np.floor(np.log2(0.25 * abs(x))) if x else 0.25


CASES = [pytest.param(one, x, id=f"{name}-{x:g}") for name, one in FUNCTIONS.items() for x in one.at]


def estimated(f: Callable, x: float):
    with np.errstate(all="ignore"):
        return slopes(lambda t: f(x + t), np.array([scale(x)]), UNIT)


def bars_off(one: Function, x: float) -> float:
    found = estimated(one.f, x)
    assert found.trouble[0] == Trouble.NONE
    wrong = abs(found.value[0] - one.slope(np.float64(x)))
    return wrong / found.error[0] if wrong else 0.0


@pytest.mark.parametrize(("one", "x"), CASES)
def test_no_estimate_is_confidently_wrong(one: Function, x: float) -> None:
    assert bars_off(one, x) < CONFIDENTLY_WRONG


def test_the_error_bars_cover_the_errors() -> None:
    off = np.array([bars_off(one, x) for one in FUNCTIONS.values() for x in one.at])
    assert len(FUNCTIONS) == 40
    assert (off <= BARS).mean() >= 0.95


def test_the_error_bars_are_narrow() -> None:
    """A bar that is wide covers everything and proves nothing: half of them tell twelve digits."""
    found = [(estimated(one.f, x), one.slope(np.float64(x))) for one in FUNCTIONS.values() for x in one.at]
    relative = [slope.error[0] / abs(truth) for slope, truth in found if truth]
    assert np.median(relative) < 1e-12
    assert np.max(relative) < 0.02


def test_a_wave_that_large_steps_cannot_see_is_seen_by_the_small_ones() -> None:
    """At every multiple of 1/64 the wave is 0: the first rungs all agree on the slope of the line beneath it."""
    found = estimated(lambda x: x + np.sin(2 * np.pi * 64 * x), 0.0)
    assert found.trouble[0] == Trouble.NONE
    assert abs(found.value[0] - (1 + 2 * np.pi * 64)) <= BARS * found.error[0]


TROUBLES = [
    pytest.param(np.abs, 0.0, Trouble.KINK, id="abs"),
    pytest.param(lambda x: np.maximum(x, 0), 0.0, Trouble.KINK, id="relu"),
    pytest.param(lambda x: np.sin(x) + 1e-3 * np.abs(x), 0.0, Trouble.KINK, id="a slight kink"),
    pytest.param(np.sign, 0.0, Trouble.JUMP, id="sign"),
    pytest.param(np.floor, 2.0, Trouble.JUMP, id="floor"),
    pytest.param(lambda x: np.cos(x) + 1e-6 * np.sign(x), 0.0, Trouble.JUMP, id="a slight jump"),
    pytest.param(np.log, 0.0, Trouble.NOT_FINITE, id="log"),
    pytest.param(np.sqrt, 0.0, Trouble.NOT_FINITE, id="root"),
]


@pytest.mark.parametrize(("f", "x", "trouble"), TROUBLES)
def test_where_there_is_no_derivative_the_estimate_says_so(f, x, trouble) -> None:
    assert estimated(f, x).trouble[0] == trouble


def test_noise_leaves_no_digits() -> None:
    rng = np.random.default_rng(0)
    found = slopes(lambda t: 1e-3 * t + rng.normal(size=t.shape), np.full(20, 0.25), UNIT)
    assert (found.trouble != Trouble.NONE).all()


def test_many_functions_are_estimated_as_one_is() -> None:
    xs = np.array([0.5, 1.0, 3.0])
    together = slopes(lambda t: np.exp(xs + t), np.full(3, 0.125), UNIT)
    for i, x in enumerate(xs):
        alone = slopes(lambda t, x=x: np.exp(x + t), np.array([0.125]), UNIT)
        assert alone.value[0] == together.value[i]
        assert alone.error[0] == together.error[i]
    assert together.evaluations == 3 * alone.evaluations
