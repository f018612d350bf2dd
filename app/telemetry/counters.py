"""Counters of one operation on one op: additions to plain numbers, a microsecond per request.

``app.telemetry.prometheus`` passes them to Prometheus' client from time to time: that client's own counters take locks,
and keep the numbers of several workers in files.
"""

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar, TypeVarTuple

from app.runtime.traces import NotTraced
from app.telemetry.accounts import NOT_CHARGED, Account, Share
from app.telemetry.stage_times import CURRENT, STAGES, Batch, Stage, StageTimes

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


class Exemplar(NamedTuple):
    """A value of a histogram, when it was counted, in seconds since 1970, and the span of its request."""

    trace_id: str
    span_id: str
    value: float
    time: float


class Distribution:
    """The values of a histogram: their sum, how many are in each bucket, and the latest exemplar of each bucket."""

    def __init__(self, bounds: Sequence[float]) -> None:
        """Start without values. ``bounds`` are the upper ones of the buckets; the last bucket has none."""
        self.bounds, self.counts, self.sum = bounds, [0] * (len(bounds) + 1), 0.0
        self.exemplars: dict[int, Exemplar] = {}

    def add(self, value: float, times: StageTimes | None = None) -> None:
        """Count a value, that of a request with these times if it is traced."""
        bucket = bisect_left(self.bounds, value)
        self.counts[bucket] += 1
        self.sum += value
        if times is not None:
            self.exemplars[bucket] = Exemplar(times.trace_id, times.span_id, value, time.time())


class Counters:
    """Counters of one operation on one op: the ``answers`` by status, and totals since the start.

    These are the ``durations`` of responses and the ``sizes`` of batches, the ``seconds`` by stage, and the
    ``executions`` of the op. ``latest`` is the end of the latest response, a time of ``time.perf_counter``.

    Responses are counted only on the event loop. Seconds are added on any thread without a lock: the interpreter
    switches threads at calls and at the ends of loops, and an addition contains neither.
    """

    def __init__(self, op: str = "", operation: str = "") -> None:
        """Start with nothing counted."""
        self.op, self.operation, self.is_probe = op, operation, operation in PROBES
        self.answers: Counter[int] = Counter()
        self.executions, self.latest = 0, 0.0
        self.seconds: dict[Stage, float] = dict.fromkeys(STAGES, 0.0)
        self.durations, self.sizes = Distribution(DURATIONS), Distribution(SIZES)

    def spent(self, stage: Stage, began: float, ended: float, account: Account = NOT_CHARGED) -> None:
        """Count the time of a stage of the request that this code works for, which ``account`` pays."""
        took = ended - began
        self.seconds[stage] += took
        if stage == "compute":
            account.add(0.0, took)
        elif stage == "queue":
            account.add(took, 0.0)
        # What nothing counts surrounds what is counted: it would be a span twice.
        if (times := CURRENT.get()) is not None and self is not NOT_RECORDED:
            times.add(stage, began, ended)

    def timed(self, stage: Stage, work: Callable[[*Args], Result], *args: *Args) -> Result:
        """Return ``work(*args)``, and count its time for a stage even if it raises."""
        began = time.perf_counter()
        try:
            return work(*args)
        finally:
            self.spent(stage, began, time.perf_counter())

    def computed(self, work: Callable[[*Args], Result], *args: *Args, account: Account = NOT_CHARGED) -> Result:
        """Return ``work(*args)``, and count a run of the op and its time, which ``account`` pays, even if it raises."""
        self.executions += 1
        began = time.perf_counter()
        try:
            return work(*args)
        except NotTraced:  # it starts again on a thread that may make the trace
            self.executions -= 1
            raise
        finally:
            self.spent("compute", began, time.perf_counter(), account)

    def batched(
        self,
        arrivals: Sequence[float],
        began: float,
        ended: float,
        members: Sequence[StageTimes | None] = (),
        shares: Sequence[Share] = (),
    ) -> None:
        """Count a batch: the wait of each evaluation, and one run. The times are those of ``time.perf_counter``.

        ``members`` are the requests of the evaluations, ``None`` for one that is not traced; empty if none is.
        ``shares`` are those of the evaluations, whose accounts pay for it; empty if none does.
        """
        waited, took = len(arrivals) * began - sum(arrivals), ended - began
        self.seconds["queue"] += waited
        self.seconds["compute"] += took
        self.executions += 1
        if shares:
            each_s = took / max(sum([units for _, units in shares]), 1)
            for arrived, (account, units) in zip(arrivals, shares, strict=True):
                account.add(began - arrived, each_s * units)
        if not any(members):
            self.sizes.add(len(arrivals))
        else:
            traced = [(times, arrived) for times, arrived in zip(members, arrivals, strict=True) if times is not None]
            self.sizes.add(len(arrivals), traced[0][0])
            size, of = len(arrivals), [times for times, _ in traced]
            batch = Batch(self.op, self.operation, size, began, ended, of) if size > 1 else None
            for times, arrived in traced:
                if arrived < began:
                    times.add("queue", arrived, began)
                times.add("compute", began, ended, batch)

    def answered(self, status: int, began: float, times: StageTimes | None = None) -> None:
        """Count the response to a request whose first byte came at ``began``, a time of ``time.perf_counter``.

        ``times`` are those of a traced request.
        """
        self.latest = time.perf_counter()
        self.answers[status] += 1
        self.durations.add(self.latest - began, times)


class CounterTable(dict[tuple[str, str], Counters]):
    """The counters of each operation on each op. Any thread may add some: to look at all, look at a copy."""

    def of(self, op: str, operation: str) -> Counters:
        """Return the counters of an operation on an op; both must be known names."""
        counters = self.get((op, operation))
        if counters is None:
            counters = self.setdefault((op, operation), Counters(op, operation))
        return counters


NOT_RECORDED, _PROBES_NOT_RECORDED = Counters(), Counters("", PROBES[0])
"""Counters that nothing reads, for disabled metrics and for paths without an operation."""


def not_recorded(op: str, operation: str) -> Counters:
    """Return counters that nothing reads, for any operation on any op."""
    del op
    return _PROBES_NOT_RECORDED if operation in PROBES else NOT_RECORDED
