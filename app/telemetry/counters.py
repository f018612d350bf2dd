"""What is counted of one operation on one op while it is answered: additions to plain numbers, a microsecond in all.

Prometheus reads them from time to time (``app.telemetry.prometheus``): its own counters take locks, and several workers
keep theirs in files.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Literal, TypeVar, TypeVarTuple, get_args

from prometheus_client import Histogram

Stage = Literal["parse", "queue", "compute", "serialise"]
STAGES: tuple[Stage, ...] = get_args(Stage)
# Where a request's scope has the counters of what it turned out to ask for; before that its path tells.
TALLY = "pullback.counters"
FIRST_ERROR = 400

Args = TypeVarTuple("Args")
Result = TypeVar("Result")


class Counters:
    """Counts nothing, and does so where nobody wants to know."""

    def timed(self, stage: Stage, work: Callable[[*Args], Result], *args: *Args) -> Result:
        """Return what ``work(*args)`` returns, and count its time as that of a stage."""
        del stage
        return work(*args)

    def waiting(self) -> Callable[[], None]:
        """Return what is to be called at the end of a wait that begins now."""
        return _nothing

    def computed(self, work: Callable[[*Args], Result], *args: *Args) -> Result:
        """Return what ``work(*args)`` returns, and count a run of the op and its time."""
        return work(*args)

    def queued(self, work: Callable[[*Args], Result]) -> Callable[[*Args], Result]:
        """Return ``work`` on its way into a queue: what passes until it begins is counted apart from what it takes."""
        ends = self.waiting()

        def begun(*args: *Args) -> Result:
            ends()
            return self.computed(work, *args)

        return begun

    def batched(self, came: Sequence[float], began: float, ended: float) -> None:
        """Count a batch of calls that came, and were then run together, at these times of ``time.perf_counter``."""

    def answered(self, status: int, began: float) -> None:
        """Count an answer to a request that came when ``time.perf_counter`` was at ``began``."""


def _nothing() -> None:
    """Do nothing."""


NOT_RECORDED = Counters()


def not_recorded(*labels: str) -> Counters:
    """Return the counters that counts nothing, whatever it is asked to count."""
    del labels
    return NOT_RECORDED


class Sum:
    """How many answers there have been, and how long their clients have waited together."""

    def __init__(self) -> None:
        """Begin with none."""
        self.count, self.seconds = 0, 0.0


class RecordedCounters(Counters):
    """Counts, until Prometheus asks for ``answers`` and ``seconds``.

    What has been counted from the beginning stays as well: answers that went ``well`` and that ``failed``, runs of the
    op, and when the ``latest`` answer ended, on the clock of ``time.perf_counter``.

    Answers are counted on the event loop alone. Seconds are added on any thread without a lock: the interpreter
    changes threads at calls and at the ends of loops, and none of these is within an addition.
    """

    def __init__(self, durations: Callable[[], Histogram], sizes: Callable[[], Histogram]) -> None:
        """Take how to get at the histograms of requests' durations and of batches' sizes, when there is one at all."""
        self.answers: Counter[int] = Counter()
        self.well, self.failed, self.executions, self.latest = Sum(), Sum(), 0, 0.0
        self.seconds: dict[Stage, float] = dict.fromkeys(STAGES, 0.0)
        self._make_durations, self._make_sizes = durations, sizes

    def timed(self, stage: Stage, work: Callable[[*Args], Result], *args: *Args) -> Result:
        """Return what ``work(*args)`` returns, or raise what it raises: its time is counted anyhow."""
        began = time.perf_counter()
        try:
            return work(*args)
        finally:
            took = time.perf_counter() - began
            self.seconds[stage] += took

    def waiting(self) -> Callable[[], None]:
        """Return what counts the time from now on as the queue's. Work that is given up is not counted."""
        came = time.perf_counter()

        def ended() -> None:
            waited = time.perf_counter() - came
            self.seconds["queue"] += waited

        return ended

    def computed(self, work: Callable[[*Args], Result], *args: *Args) -> Result:
        """Return what ``work(*args)`` returns, or raise what it raises: it is counted anyhow."""
        self.executions += 1
        return self.timed("compute", work, *args)

    def batched(self, came: Sequence[float], began: float, ended: float) -> None:
        """Count a batch: each call has waited for itself, and all of them were computed once."""
        waited, took = len(came) * began - sum(came), ended - began
        self.seconds["queue"] += waited
        self.seconds["compute"] += took
        self.executions += 1
        self._sizes.observe(len(came))

    def answered(self, status: int, began: float) -> None:
        """Count an answer and how long the client has waited for it."""
        self.latest = time.perf_counter()
        took, found = self.latest - began, self.well if status < FIRST_ERROR else self.failed
        found.count += 1
        found.seconds += took
        self.answers[status] += 1
        self._durations.observe(took)

    @cached_property
    def _durations(self) -> Histogram:
        return self._make_durations()

    @cached_property
    def _sizes(self) -> Histogram:
        return self._make_sizes()
