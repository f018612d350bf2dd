"""Pods in simulated time: what a process of the service does with the requests that it has.

Brief requests share calls, as in the service: whatever has arrived while one call ran shares the next, which takes a
fixed time and the time of each request. Long requests run one after the other on a second thread.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import simpy

# As INLINE_S in app/execution/batching.py.
BRIEF_S = 2e-3


@dataclass(eq=False, slots=True)
class Request:
    """A request: when it arrived, and the seconds that it computes for; then where it is, and when it was answered."""

    arrived: float
    cost_s: float
    pod: int = -1
    answered: float = -1.0
    resent: int = 0


@dataclass(frozen=True)
class Costs:
    """Seconds: of every call, of every request outside of the pod, and from which a request is not brief."""

    call_s: float = 0.0
    outside_s: float = 0.0
    brief_s: float = BRIEF_S


class Pod:
    """One process: a loop that answers brief requests together, and a thread that answers long ones in turn."""

    def __init__(self, env: simpy.Environment, costs: Costs, done: Callable[[Request], None]) -> None:
        """Call ``done`` with each request when it has been answered."""
        self._env, self._costs, self._done = env, costs, done
        self._waiting, self._running = list[Request](), list[Request]()
        self._queue = deque[Request]()
        self.is_alive = True
        self.busy_s = 0.0

    def submit(self, request: Request) -> None:
        """Take a request."""
        if request.cost_s < self._costs.brief_s:
            self._waiting.append(request)
            if not self._running:
                self._run_together()
        else:
            self._queue.append(request)
            if len(self._queue) == 1:
                self._run_first()

    def die(self) -> list[Request]:
        """End now; return the requests that were not answered."""
        self.is_alive = False
        left = [*self._running, *self._waiting, *self._queue]
        self._running, self._waiting, self._queue = [], [], deque()
        return left

    def _run_together(self) -> None:
        self._running, self._waiting = self._waiting, []
        seconds = self._costs.call_s + sum(request.cost_s for request in self._running)
        self.busy_s += seconds
        self._env.timeout(seconds).callbacks.append(self._end_call)

    def _end_call(self, _: simpy.Event) -> None:
        if not self.is_alive:
            return
        answered, self._running = self._running, []
        if self._waiting:
            self._run_together()
        for request in answered:
            self._done(request)

    def _run_first(self) -> None:
        seconds = self._costs.call_s + self._queue[0].cost_s
        self.busy_s += seconds
        self._env.timeout(seconds).callbacks.append(self._end_first)

    def _end_first(self, _: simpy.Event) -> None:
        if not self.is_alive:
            return
        request = self._queue.popleft()
        if self._queue:
            self._run_first()
        self._done(request)
