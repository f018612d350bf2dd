"""The pace of checks: which come first, and how long those that are left will take."""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence

from app.gradcheck.report import Report, Step

SHARES: Mapping[str, float] = {
    **{"contract": 3, "mutation": 0.5, "batching": 3, "value": 1, "derivative": 3, "linearity": 0.5, "second": 4},
    **{"sizes": 3, "attributes": 1, "adjoint": 1, "symmetry": 1, "finite": 4, "dtypes": 2, "higher": 8},
    **{"subset": 0.5, "directions": 4, "determinism": 0.5, "retrace": 2, "modes": 5, "declarations": 1, "cost": 0.5},
    "sparsity": 0.5,
}
"""About how long a check takes, relative to the others, in the order in which they run.

First come those that the others rely on, and then those that find most for their time: the gradients themselves, before
whether modes, dtypes and traces agree. A check at attributes that no example has takes a quarter.
"""
SHARE_WITHOUT_EXAMPLE = 0.25


def in_order(report: Report) -> list[Step]:
    """Return the steps of a report in the order in which they run: where time is short, the last are left out."""
    ranks = {check: rank for rank, check in enumerate(SHARES)}
    return sorted(report.steps, key=lambda step: (ranks.get(step.check, len(ranks)), not step.target.has_example))


class Pace:
    """How long the steps of some reports have taken, and will take if each op goes on as it has begun."""

    def __init__(self, reports: Sequence[Report], at_once: int = 1) -> None:
        """Start before the first step; so many reports are made at the same time."""
        self._left = defaultdict[str, float](float)
        for report in reports:
            for step in report.steps:
                self._left[report.op.name] += _share(step)
        self._done, self._seconds = defaultdict[str, float](float), defaultdict[str, float](float)
        self._running, self._at_once = dict[str, tuple[Step, float]](), at_once

    def begin(self, step: Step) -> None:
        """Count the time until now for the step of the op before, if there is one, and from now on for this one."""
        self._end(name := step.report.op.name)
        self._running[name] = step, time.monotonic()

    def leave(self, report: Report) -> None:
        """Count none of the steps of a report as left: they are over."""
        self._end(report.op.name)
        self._left[report.op.name] = 0.0

    def _end(self, name: str) -> None:
        if name in self._running:
            step, began = self._running.pop(name)
            self._left[name] = max(0.0, self._left[name] - _share(step))
            self._done[name] += _share(step)
            self._seconds[name] += time.monotonic() - began

    @property
    def left_s(self) -> float | None:
        """The seconds that the running step and those after it will take; ``None`` before the first has ended."""
        done, seconds = sum(self._done.values()), sum(self._seconds.values())
        if not done:
            return None
        rates = {name: self._seconds[name] / self._done[name] for name in self._done}
        left = [share * rates.get(name, seconds / done) for name, share in self._left.items()]
        return max(sum(left) / self._at_once, *left)


def _share(step: Step) -> float:
    return SHARES.get(step.check, 1.0) * (1.0 if step.target.has_example else SHARE_WITHOUT_EXAMPLE)
