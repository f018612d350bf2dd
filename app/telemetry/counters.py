"""Counters of one operation on one op: additions to plain numbers, a microsecond per request.

``app.telemetry.prometheus`` passes them to Prometheus' client from time to time: that client's own counters take locks,
and keep the numbers of several workers in files.
"""

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar, TypeVarTuple, get_args

from app.runtime.traces import NotTraced

Stage = Literal["parse", "queue", "compute", "serialise"]
STAGES: tuple[Stage, ...] = get_args(Stage)
FIRST_ERROR = 400
# Operations of monitoring, counted apart from the requests of users.
PROBES = ("health", "metrics")

# The upper bounds of the buckets of the histograms: seconds, and numbers of evaluations.
DURATIONS = (
    *(0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
    *(1, 2, 5, 10, 15, 20, 30, 45, 60, 120, 300, 600),
)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)

Args = TypeVarTuple("Args")
Result = TypeVar("Result")


@dataclass
class Sum:
    """A number of responses, and the total time that their clients have waited, in seconds."""

    count: int = 0
    seconds: float = 0.0


class Distribution:
    """The values of a histogram: their sum, and how many are in each bucket."""

    def __init__(self, bounds: Sequence[float]) -> None:
        """Start without values. ``bounds`` are the upper ones of the buckets; the last bucket has none."""
        self.bounds, self.counts, self.sum = bounds, [0] * (len(bounds) + 1), 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class Counters:
    """Counters of one operation on one op: the ``answers`` by status, and totals since the start.

    These are the ``durations`` of responses and the ``sizes`` of batches, the ``seconds`` by stage, the responses that
    went ``well`` and that ``failed``, and the ``executions`` of the op. ``latest`` is the end of the latest response, a
    time of ``time.perf_counter``.

    Responses are counted only on the event loop. Seconds are added on any thread without a lock: the interpreter
    switches threads at calls and at the ends of loops, and an addition contains neither.
    """

    def __init__(self, *, is_probe: bool = False) -> None:
        """Start with nothing counted."""
        self.is_probe = is_probe
        self.answers: Counter[int] = Counter()
        self.well, self.failed, self.executions, self.latest = Sum(), Sum(), 0, 0.0
        self.seconds: dict[Stage, float] = dict.fromkeys(STAGES, 0.0)
        self.durations, self.sizes = Distribution(DURATIONS), Distribution(SIZES)

    def timed(self, stage: Stage, work: Callable[[*Args], Result], *args: *Args) -> Result:
        """Return ``work(*args)``, and count its time for a stage even if it raises."""
        began = time.perf_counter()
        try:
            return work(*args)
        finally:
            took = time.perf_counter() - began
            self.seconds[stage] += took

    def computed(self, work: Callable[[*Args], Result], *args: *Args) -> Result:
        """Return ``work(*args)``, and count a run of the op and its time even if it raises."""
        self.executions += 1
        try:
            return self.timed("compute", work, *args)
        except NotTraced:  # it starts again on a thread that may make the trace
            self.executions -= 1
            raise

    def batched(self, arrivals: Sequence[float], began: float, ended: float) -> None:
        """Count a batch: the wait of each evaluation, and one run. The times are those of ``time.perf_counter``."""
        waited, took = len(arrivals) * began - sum(arrivals), ended - began
        self.seconds["queue"] += waited
        self.seconds["compute"] += took
        self.executions += 1
        self.sizes.add(len(arrivals))

    def gave_up(self, arrived: float) -> None:
        """Count the wait of work that arrived then, and does not begin."""
        waited_s = time.perf_counter() - arrived
        self.seconds["queue"] += waited_s

    def answered(self, status: int, began: float) -> None:
        """Count the response to a request whose first byte came at ``began``, a time of ``time.perf_counter``."""
        self.latest = time.perf_counter()
        took, outcome = self.latest - began, self.well if status < FIRST_ERROR else self.failed
        outcome.count += 1
        outcome.seconds += took
        self.answers[status] += 1
        self.durations.add(took)


NOT_RECORDED, _PROBES_NOT_RECORDED = Counters(), Counters(is_probe=True)
"""Counters that nothing reads, for disabled metrics and for paths without an operation."""


def not_recorded(op: str, operation: str) -> Counters:
    """Return counters that nothing reads, for any operation on any op."""
    del op
    return _PROBES_NOT_RECORDED if operation in PROBES else NOT_RECORDED
