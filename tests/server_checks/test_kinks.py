"""At a kink in one number, a gradient far from the slopes of both sides is wrong; at others nothing is compared."""

from collections.abc import Callable

import numpy as np
import pytest

from pullback.gradcheck import check

X = np.array([0.7, 0.0, -1.3, 0.0])
W = np.array([[1.0, -0.5], [2.0, 1.5]])


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


def difference(x: np.ndarray) -> np.ndarray:
    return relu(x) - 0.1 * relu(-x)


def residual(x: np.ndarray) -> np.ndarray:
    return x + difference(x)


@pytest.mark.parametrize(
    ("function", "slope", "verdict"),
    [
        *((relu, slope, "pass") for slope in (0, 0.5, 1)),
        *((relu, slope, "fail") for slope in (-1.2, 2.5, 5, np.nan)),
        *((np.abs, slope, "pass") for slope in (-1, 0, 1)),
        *((np.abs, slope, "fail") for slope in (-3.1, 4)),
        # As frameworks differentiate them.
        (difference, 0, "pass"),
        (residual, 1, "pass"),
    ],
)
def test_a_gradient_at_a_kink(function: Callable[..., np.ndarray], slope: float, verdict: str) -> None:
    negative, positive = {"relu": (0, 1), "absolute": (-1, 1), "difference": (0.1, 1), "residual": (1.1, 2)}[
        function.__name__
    ]

    def gradient(x: np.ndarray, dy: np.ndarray) -> np.ndarray:
        return dy * np.where(x > 0, positive, np.where(x < 0, negative, slope))

    assert check(function, X, vjp=gradient, raises=False).verdict == verdict


def test_the_kinks_of_hidden_units_that_meet_are_not_compared() -> None:
    def network(x: np.ndarray) -> float:
        return float(relu(W @ x) @ [1.0, -3.0])

    def gradient(x: np.ndarray) -> np.ndarray:
        return W.T @ ((W @ x > 0) * [1.0, -3.0])

    assert check(network, np.zeros(2), vjp=gradient)
