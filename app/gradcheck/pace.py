"""The pace of checks: which come first, and how long those that are left will take."""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence

from app.gradcheck.report import Report, Step

SHARES: Mapping[str, float] = {
    **{"contract": 3, "mutation": 0.5, "batching": 3, "value": 1, "derivative": 3, "linearity": 0.5, "second": 4},
    **{"sizes": 3, "adjoint": 1, "symmetry": 1, "finite": 4, "dtypes": 2, "higher": 8, "subset": 0.5, "directions": 4},
    **{"determinism": 0.5, "retrace": 2, "modes": 5, "cost": 0.5},
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

    def __init__(self, reports: Sequence[Report]) -> None:
        """Start before the first step."""
        self._left = defaultdict[str, float](float)
        for report in reports:
            for step in report.steps:
                self._left[report.op.name] += _share(step)
        self._done, self._seconds = defaultdict[str, float](float), defaultdict[str, float](float)
        self._running: Step | None = None
        self._began = 0.0

    def begin(self, step: Step) -> None:
        """Count the time until now for the step before, if there is one, and from now on for this one."""
        now = time.monotonic()
        if (last := self._running) is not None:
            name, share = last.report.op.name, _share(last)
            self._left[name] = max(0.0, self._left[name] - share)
            self._done[name] += share
            self._seconds[name] += now - self._began
        self._running, self._began = step, now

    def leave(self, report: Report) -> None:
        """Count none of the steps of a report as left: they are over."""
        self._left[report.op.name] = 0.0

    @property
    def left_s(self) -> float | None:
        """The seconds that the running step and those after it will take; ``None`` before the first has ended."""
        done, seconds = sum(self._done.values()), sum(self._seconds.values())
        if not done:
            return None
        rates = {name: self._seconds[name] / self._done[name] for name in self._done}
        return sum(share * rates.get(name, seconds / done) for name, share in self._left.items())


def _share(step: Step) -> float:
    return SHARES.get(step.check, 1.0) * (1.0 if step.target.has_example else SHARE_WITHOUT_EXAMPLE)
