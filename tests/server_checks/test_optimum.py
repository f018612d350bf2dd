"""At an optimum a gradient is rounding: nothing can be told there of one with a wrong factor, but of a wrong term."""

from collections.abc import Callable

import numpy as np
import pytest

from pullback.gradcheck.assertion import judged
from pullback.gradcheck.events import TargetOptions
from pullback.gradcheck.of.called import called_function

RNG = np.random.default_rng(0)
A, B, EXACT = RNG.normal(size=(6, 3)), RNG.normal(size=6), RNG.normal(size=3)
SOLUTION = np.linalg.lstsq(A, B, rcond=None)[0]


@pytest.mark.parametrize(
    ("gradient", "there", "around"),
    [
        (lambda x, b: 2 * A.T @ (A @ x - b), "inconclusive", "pass"),
        (lambda x, b: 4 * A.T @ (A @ x - b), "inconclusive", "fail"),
        (lambda x, b: 2 * A.T @ (A @ x - b) + 0.01 * x, "fail", "fail"),
    ],
)
@pytest.mark.parametrize(("x", "b"), [(SOLUTION, B), (EXACT, A @ EXACT)], ids=["with residuals", "exact"])
def test_least_squares_at_the_solution(
    gradient: Callable[..., np.ndarray], there: str, around: str, x: np.ndarray, b: np.ndarray
) -> None:
    def squares(x: np.ndarray) -> float:
        return float(np.sum((A @ x - b) ** 2))

    target = called_function(squares, x, vjp=lambda x: gradient(x, b))
    for points, verdict in (([x.tolist()], there), ((), around)):
        found = judged(target, TargetOptions(inputs=[points] if points else ()), ["derivative"])
        assert found.verdict == verdict, found
