"""A numeric derivative with a bound on its error, for a function that can be evaluated near the point."""

from collections.abc import Callable, Mapping

import numpy as np

from ops import Array
from tests.ops.cases import bounds, eps

# Central differences of order 6, 8 and 10: f' = Σₖ wₖ (f(x + kh) - f(x - kh)) / h.
WEIGHTS = {
    6: np.array([3 / 4, -3 / 20, 1 / 60, 0, 0]),
    8: np.array([4 / 5, -1 / 5, 4 / 105, -1 / 280, 0]),
    10: np.array([5 / 6, -5 / 21, 5 / 84, -5 / 504, 1 / 1260]),
}
REACH = 5
STEPS = (2.0**-6, 2.0**-10)
# Random directions for each input: a wrong gradient is orthogonal to them only with probability 0.
DIRECTIONS = 3

Function = Callable[[Mapping[str, Array]], Mapping[str, Array]]


def derivative(value: Callable[[float], float], noise: float) -> tuple[float, float]:
    """Return the derivative at 0 of a function with an error of at most ``noise``, and a bound on its error.

    The error is that of the truncation, which the differences between the orders 6, 8 and 10 bound together (that of
    order 10 alone is far less, and no chance makes both differences small), and that of the function, which the weights
    of the differences amplify by their sum over h. Of several steps, the step with the least bound is used.
    """
    best, least = np.nan, np.inf
    for h in STEPS:
        differences = np.array([value(k * h) - value(-k * h) for k in range(1, REACH + 1)])
        by_order = {order: float(w @ differences) / h for order, w in WEIGHTS.items()}
        truncation = abs(by_order[10] - by_order[8]) + abs(by_order[8] - by_order[6])
        bound = truncation + 2 * noise * float(np.abs(WEIGHTS[10]).sum()) / h
        if bound < least:
            best, least = by_order[10], bound
    return best, least


def check_gradient(
    gradient: Mapping[str, Array],
    within: Mapping[str, Array],
    f: Function,
    at: Mapping[str, Array],
    *,
    weights: Mapping[str, Array],
    what: str,
    reach: float = np.inf,
) -> None:
    """Fail if a gradient of Σ ⟨weights, f⟩ differs from the numeric one by more than the sum of both error bounds.

    Also fail if the numeric derivative has an error bound above a millionth, which proves nothing. All steps stay
    within half of ``reach``, the distance to the nearest kink or pole.
    """
    rng = np.random.default_rng(1)
    assert reach > 0, f"{what}: the point is at a kink or pole"
    scale = min(1.0, reach / (2 * REACH * STEPS[0]))
    exact = bounds(f, at, eps("float64"))
    noise = sum(float((np.abs(w) * exact[name]).sum()) for name, w in weights.items())
    for name, dx in gradient.items():
        for direction in scale * rng.uniform(0.25, 1, (DIRECTIONS, *dx.shape)) * rng.choice([-1.0, 1.0], dx.shape):

            def value(t: float, name: str = name, direction: Array = direction) -> float:
                y = f({**at, name: at[name] + t * direction})
                return sum(float((w * np.asarray(y[slot], np.float64)).sum()) for slot, w in weights.items())

            slope, error = derivative(value, noise)
            dot = float((dx * direction).sum())
            allowed = error + float((np.abs(direction) * within[name]).sum())
            assert allowed <= 1e-6 * max(1.0, abs(dot)), f"{what}: the derivative is known only to {allowed}"
            assert abs(dot - slope) <= allowed, f"{what}, {name} along {direction}: {slope} ± {allowed}, got {dot}"
