"""How a balancer chooses a pod: each policy returns the index of one, and may know the requests in flight of all."""

import random
from typing import Protocol

import numpy as np


class Policy(Protocol):
    """A choice among pods; ``up`` says which of them the balancer takes for alive."""

    def choose(self, in_flight: np.ndarray, up: np.ndarray) -> int:
        """Return the index of a pod."""
        ...


class Random:
    """Any pod, as a client that resolves a name, or kube-proxy."""

    def __init__(self, seed: int) -> None:
        """Draw from this seed."""
        self._rng = random.Random(seed)

    def choose(self, in_flight: np.ndarray, up: np.ndarray) -> int:
        """Return the index of a pod."""
        while not up[found := self._rng.randrange(len(in_flight))]:
            pass
        return found


class RoundRobin:
    """Each pod in turn."""

    def __init__(self, seed: int) -> None:
        """Begin with the first; ``seed`` is not used."""
        del seed
        self._next = -1

    def choose(self, in_flight: np.ndarray, up: np.ndarray) -> int:
        """Return the index of a pod."""
        while True:
            self._next = (self._next + 1) % len(in_flight)
            if up[self._next]:
                return self._next


class LeastConnections:
    """The pod with the fewest requests in flight; of several, the one that was chosen longest ago."""

    def __init__(self, seed: int) -> None:
        """Start; ``seed`` is not used."""
        del seed
        self._chosen = np.zeros(0)
        self._count = 0

    def choose(self, in_flight: np.ndarray, up: np.ndarray) -> int:
        """Return the index of a pod."""
        if len(self._chosen) != len(in_flight):
            self._chosen = np.resize(self._chosen, len(in_flight))
        # Less than one request, however many requests there were.
        found = int(np.argmin(np.where(up, in_flight + self._chosen, np.inf)))
        self._count += 1
        self._chosen[found] = self._count * 1e-9
        return found


class TwoChoices:
    """Of two random pods the one with fewer requests in flight, as many balancers without a common state do."""

    def __init__(self, seed: int) -> None:
        """Draw from this seed."""
        self._random = Random(seed)

    def choose(self, in_flight: np.ndarray, up: np.ndarray) -> int:
        """Return the index of a pod."""
        one, other = (self._random.choose(in_flight, up) for _ in range(2))
        return one if in_flight[one] <= in_flight[other] else other


POLICIES = {
    "random": Random,
    "round-robin": RoundRobin,
    "two choices": TwoChoices,
    "leastconn": LeastConnections,
}
