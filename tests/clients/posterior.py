"""Compare the draws of a sampler with the moments of the posterior by quadrature."""

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
BATCHES = 20
# The allowed error of a chain's mean, in estimated standard errors: chance does not exceed five.
MARGIN = 5


def moments(log_density: Callable[[Array], Array], low: float, high: float, dimensions: int, points: int) -> Array:
    """Return mean and standard deviation of each coordinate, by the trapezoidal rule on a grid; shape [2, dimensions].

    ``log_density`` takes points of shape [..., dimensions] and need not be normalised.
    """
    axes = [np.linspace(low, high, points)] * dimensions
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, dimensions)
    logs = log_density(grid)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    mean = weights @ grid
    return np.stack([mean, np.sqrt(weights @ (grid - mean) ** 2)])


def is_recovered(draws: Array, expected: Array) -> bool:
    """Report whether chains, of shape [chains, draws, dimensions], have these moments, within their standard errors."""
    chains, count, dimensions = draws.shape
    batches = draws[:, : count - count % BATCHES].reshape(chains * BATCHES, -1, dimensions)
    for samples, exact in ((batches, expected[0]), ((batches - expected[0]) ** 2, expected[1] ** 2)):
        means = samples.mean(axis=1)
        error = means.std(axis=0, ddof=1) / np.sqrt(len(means))
        if not np.all(np.abs(means.mean(axis=0) - exact) < MARGIN * error):
            return False
    return True
