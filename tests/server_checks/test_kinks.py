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


def distance(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(np.sort(a) - np.sort(b)).sum())


def of_distance(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    sign, da, db = np.sign(np.sort(a) - np.sort(b)), np.empty_like(a), np.empty_like(b)
    da[np.argsort(a, kind="stable")], db[np.argsort(b, kind="stable")] = sign, -sign
    return da, db


A, B = np.array([0.4, 0.7, 0.0, 0.0, -1.4]), np.array([0.0, -0.2, 0.0, 0.0, -1.3])


@pytest.mark.parametrize("seed", range(5))
def test_the_kinks_of_sorted_numbers_that_meet_are_not_compared(seed: int) -> None:
    assert check(distance, (A, B), vjp=of_distance, seed=seed, raises=False).verdict == "pass"


def sizes(x: np.ndarray) -> float:
    return float(((x[:, None] - x) ** 2).sum() + np.abs(x).sum())


def of_sizes(x: np.ndarray, at_ties: float) -> np.ndarray:
    apart = x[:, None] - x
    return 4 * apart.sum(1) + np.sign(x) + at_ties * ((apart == 0).sum(1) > 1)


@pytest.mark.parametrize(("at_ties", "verdict"), [(0.0, "pass"), (0.3, "fail")])
def test_a_gradient_that_is_wrong_at_equal_numbers_alone_fails(at_ties: float, verdict: str) -> None:
    def gradient(x: np.ndarray) -> np.ndarray:
        return of_sizes(x, at_ties)

    assert check(sizes, np.array([0.3, 0.0, -0.7, 0.3]), vjp=gradient, raises=False).verdict == verdict
