"""A fleet in simulated time: requests arrive at a balancer, which chooses a pod for each."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import simpy

from benchmarks.scaling.pods import Costs, Pod, Request
from benchmarks.scaling.policies import Policy

# As in deploy/haproxy/haproxy.cfg.
RESENDS = 3


@dataclass(frozen=True)
class Result:
    """What became of the requests after the warm-up: latencies in seconds, and means over time.

    ``in_flight`` is the mean number of requests in a pod, ``busy`` that of its loop and thread that compute;
    ``refused`` and ``lost`` count requests without an answer.
    """

    latencies_s: np.ndarray
    arrived_s: np.ndarray
    in_flight: float
    busy: float
    refused: int = 0
    lost: int = 0

    def percentile_s(self, share: float) -> float:
        """Return a percentile of the latencies, in seconds."""
        return float(np.quantile(self.latencies_s, share))


class Fleet:
    """Pods behind a balancer. ``most_waiting`` bounds the requests in flight for each pod; the others are refused."""

    def __init__(self, policy: Policy, costs: Costs, pods: int, most_waiting: float = float("inf")) -> None:
        """Start so many pods."""
        self.env, self._policy, self._costs = simpy.Environment(), policy, costs
        self._most_waiting = most_waiting
        self.pods = list[Pod]()
        self.in_flight, self.up = np.zeros(0), np.zeros(0, bool)
        self.refused = self.lost = 0
        self.resends = True
        for _ in range(pods):
            self.add()

    def add(self) -> None:
        """Add a pod, which is ready."""
        self.pods.append(Pod(self.env, self._costs, self._done))
        self.in_flight, self.up = np.append(self.in_flight, 0), np.append(self.up, True)

    def leave_out(self, index: int) -> None:
        """Send a pod no more requests."""
        self.up[index] = False

    def kill(self, index: int, noticed_after_s: float) -> None:
        """End a pod now. The balancer sends its requests to others, at once, but notices only later that it is gone."""
        left = self.pods[index].die()
        self.in_flight[index] = 0
        self.env.timeout(noticed_after_s).callbacks.append(lambda _: self.leave_out(index))
        for request in left:
            self._resend(request)

    def run(self, times_s: np.ndarray, costs_s: np.ndarray, warm_up: float = 0.1) -> Result:
        """Send the requests, wait for all answers, and return what became of those after a share that warms up."""
        requests = [Request(float(t), float(c)) for t, c in zip(times_s, costs_s, strict=True)]
        self.env.process(self._arrive(requests))
        self.env.run()
        return self._result(requests[int(len(requests) * warm_up) :])

    def _arrive(self, requests: Sequence[Request]):  # noqa: ANN202 - a process of SimPy
        for request in requests:
            if request.arrived > self.env.now:
                yield self.env.timeout(request.arrived - self.env.now)
            self._send(request)

    def _send(self, request: Request) -> None:
        if self.in_flight.sum() >= self._most_waiting * self.up.sum():
            self.refused += 1
            return
        # Not the pod that has just lost it, if there is another.
        up = self.up
        if request.pod >= 0 and up.sum() > 1:
            up = up & (np.arange(len(up)) != request.pod)
        request.pod = self._policy.choose(self.in_flight, up)
        if not self.pods[request.pod].is_alive:
            self._resend(request)
            return
        self.in_flight[request.pod] += 1
        self.pods[request.pod].submit(request)

    def _resend(self, request: Request) -> None:
        """Choose again, up to three times."""
        request.resent += 1
        if not self.resends or request.resent > RESENDS:
            self.lost += 1
        else:
            self._send(request)

    def _done(self, request: Request) -> None:
        self.in_flight[request.pod] -= 1
        request.answered = self.env.now

    def _result(self, requests: Sequence[Request]) -> Result:
        answered = [request for request in requests if request.answered >= 0]
        arrived = np.array([request.arrived for request in answered])
        inside = np.array([request.answered for request in answered]) - arrived
        span = requests[-1].arrived - requests[0].arrived
        return Result(
            inside + self._costs.outside_s,
            arrived,
            # Little's law.
            float(inside.sum()) / span / len(self.pods) if span else 0.0,
            sum(pod.busy_s for pod in self.pods) / self.env.now / len(self.pods),
            self.refused,
            self.lost,
        )
