"""Forty functions with closed-form derivatives, against which numeric derivatives are measured.

They cover what makes a numeric derivative hard: noise from cancellation, scales far from 1, ends of the domain, waves
faster than the steps, kinks and jumps nearby, and derivatives that are 0. The tests check our derivatives on them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import special

UNIT = 2.0**-52
"""The relative distance between neighbouring numbers of float64, in which all functions are computed."""
BARS = 3.0
"""How many of its own error bars an estimate may be off, in 19 cases of 20."""
CONFIDENTLY_WRONG = 100.0
"""How many of its own error bars no estimate may ever be off."""


class Function(NamedTuple):
    """A function, its derivative, and the points where they are compared. Both take an array or a number."""

    f: Callable[[Any], Any]
    slope: Callable[[Any], Any]
    at: tuple[float, ...]


FUNCTIONS: dict[str, Function] = {
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
    "cancelling": Function(lambda x: (1e6 + x) - 1e6, lambda x: 0 * x + 1, (0.0, 1e-6, 1.0)),
}
"""The functions by name. ``0 * x`` makes a constant of the shape of ``x``."""


def scale(x: float) -> float:
    """Return the largest step to take from ``x``: a power of two between |x|/8 and |x|/4, and 1/4 from 0."""
    return float(2.0 ** np.floor(np.log2(0.25 * abs(x)))) if x else 0.25
