"""When requests arrive, and how long they compute: times and costs in seconds, as arrays."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Sizes:
    """Costs from a Pareto distribution between two bounds: a few requests take a thousand times as long as most."""

    least_s: float = 40e-6
    most_s: float = 50e-3
    tail: float = 1.3

    def draw(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Return the costs of so many requests, by the inverse of the distribution function."""
        kept = 1 - (self.least_s / self.most_s) ** self.tail
        return self.least_s * (1 - kept * rng.random(count)) ** (-1 / self.tail)

    def mean_s(self, above_s: float = 0.0) -> float:
        """Return the mean of what requests above this cost add: of all costs, those below count as 0."""
        a, low, high = self.tail, self.least_s, self.most_s
        scale = low**a / (1 - (low / high) ** a) * a / (a - 1)
        return scale * (max(low, above_s) ** (1 - a) - high ** (1 - a))

    def share(self, above_s: float) -> float:
        """Return the share of the requests above a cost."""
        a, low, high = self.tail, self.least_s, self.most_s
        return ((low / max(low, above_s)) ** a - (low / high) ** a) / (1 - (low / high) ** a)


def poisson(rate: float, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return the times of independent requests, ``rate`` a second."""
    return np.cumsum(rng.exponential(1 / rate, count))


def bursts(rate: float, count: int, rng: np.random.Generator, size: int = 64) -> np.ndarray:
    """Return the times of requests that arrive ``size`` at once, as those of a step of many samplers."""
    return np.repeat(poisson(rate / size, -(-count // size), rng), size)[:count]


ARRIVALS = {"Poisson": poisson, "bursts of 64": bursts}
