"""An autoscaler in simulated time, as Kubernetes runs it with deploy/kubernetes/monitoring: by requests in flight."""

import math
from collections import deque
from dataclasses import dataclass

import numpy as np

from benchmarks.scaling.fleet import Fleet

SCRAPE_S, MEAN_S, SYNC_S = 5.0, 60.0, 15.0
# The autoscaler does nothing while the metric is as near to its target.
TOLERANCE = 0.1


@dataclass
class Autoscaler:
    """Adds pods so that each has ``target`` requests in flight; a new pod is ready after ``start_s``."""

    fleet: Fleet
    target: float
    start_s: float
    until_s: float

    def start(self) -> None:
        """Begin; the pods that it has ordered count, even before they are ready."""
        self._ordered = len(self.fleet.pods)
        self._samples = deque[float](maxlen=int(MEAN_S / SCRAPE_S))
        self.fleet.env.process(self._scrape())
        self.fleet.env.process(self._sync())

    def _scrape(self):  # noqa: ANN202 - a process of SimPy
        while self.fleet.env.now < self.until_s:
            yield self.fleet.env.timeout(SCRAPE_S)
            self._samples.append(float(self.fleet.in_flight.sum()))

    def _sync(self):  # noqa: ANN202 - a process of SimPy
        while self.fleet.env.now < self.until_s:
            yield self.fleet.env.timeout(SYNC_S)
            ready = len(self.fleet.pods)
            per_pod = float(np.mean(self._samples)) / ready
            if abs(per_pod / self.target - 1) > TOLERANCE:
                wanted = math.ceil(ready * per_pod / self.target)
                # At most twice as many pods in 15 s, or four more.
                self._order(min(wanted, max(2 * self._ordered, self._ordered + 4)))

    def _order(self, wanted: int) -> None:
        for _ in range(wanted - self._ordered):
            self.fleet.env.timeout(self.start_s).callbacks.append(lambda _: self.fleet.add())
        self._ordered = max(self._ordered, wanted)
