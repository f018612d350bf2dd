"""The metrics of the service as Prometheus reads them, and how several workers share them.

The process passes its counters to Prometheus' client at every scrape, and every second because a scrape may reach
another worker. The client keeps the numbers of several workers in files, in a folder that they share; the files outlive
the workers that wrote them.
"""

import asyncio
import fcntl
import itertools
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, values
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector

from app.runtime.traces import trace_counts
from app.telemetry.counters import STAGES, RecordedCounters, Stage

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
EVERY_S = 1.0

DURATIONS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 60)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SPENT: dict[Stage, str] = {
    "parse": "reading requests: the body, its tensors and the point",
    "queue": "waiting for TensorFlow, summed over requests",
    "compute": "computing: a batch counts once, whatever its size",
    "serialise": "writing responses",
}


class _Families:
    """Prometheus' counters, gauges and histograms, by what they count."""

    def __init__(self, registry: CollectorRegistry | None) -> None:
        """Declare them; without a registry their numbers are found in the folder."""
        by_operation = ("op", "operation")
        counter = partial(Counter, registry=registry)
        histogram = partial(Histogram, labelnames=by_operation, registry=registry)
        gauge = partial(Gauge, multiprocess_mode="sum", registry=registry)
        self.requests = counter("pullback_requests", "Answered requests.", (*by_operation, "status"))
        self.durations = histogram(
            "pullback_request_duration_seconds",
            "Seconds from a request's headers to the end of its response.",
            buckets=DURATIONS,
        )
        self.batch_sizes = histogram("pullback_batch_size", "Requests that share one TensorFlow call.", buckets=SIZES)
        self.seconds = {
            stage: counter(f"pullback_{stage}_seconds", f"Seconds spent {what}.", by_operation)
            for stage, what in SPENT.items()
        }
        self.in_flight = gauge("pullback_in_flight_requests", "Requests in progress.")
        self.queue = gauge(
            "pullback_queue_length",
            "Entries that PULLBACK_QUEUE limits: evaluations in batches, and work in the lane (a batch counts once).",
            ("queue",),
        )
        self.traces = counter("pullback_traces", "Traced functions created.")
        self.compilations = counter("pullback_xla_compilations", "Traced functions compiled by XLA.")


class Metrics:
    """The metrics of this process, and of those that it has a folder in common with."""

    def __init__(self, in_lane: Callable[[], int], in_batches: Callable[[], int], in_flight: Callable[[], int]) -> None:
        """Take the functions that return how much waits in the lane and in batches, and how much is in flight.

        The folder is that of ``PROMETHEUS_MULTIPROC_DIR``; without it this process is the only one.
        """
        self._in_lane, self._in_batches, self._in_flight = in_lane, in_batches, in_flight
        self._tallies: dict[tuple[str, str], RecordedCounters] = {}
        self._told_seconds: dict[tuple[str, str, Stage], float] = {}
        self._told_traces = self._told_compilations = 0
        self._registry = CollectorRegistry()
        disable_created_metrics()
        if folder := os.environ.get(FOLDER_VARIABLE):
            place = take_a_place(Path(folder))
            values.ValueClass = values.MultiProcessValue(lambda: place)  # pyright: ignore[reportUnknownMemberType] - untyped
            MultiProcessCollector(self._registry, folder)
        self._families = _Families(None if folder else self._registry)

    def counters(self, op: str, operation: str) -> RecordedCounters:
        """Return where to count what happens to an operation on an op; both become labels, so both must be known."""
        found = self._tallies.get((op, operation))
        if found is None:
            histograms = (self._families.durations, self._families.batch_sizes)
            found = RecordedCounters(*(partial(histogram.labels, op, operation) for histogram in histograms))
            self._tallies[op, operation] = found
        return found

    @asynccontextmanager
    async def kept_up(self) -> AsyncGenerator[None]:
        """Inside this block, what is counted is told every second, and at its end."""
        telling = asyncio.create_task(self._keep_telling())
        try:
            yield
        finally:
            telling.cancel()
            with suppress(asyncio.CancelledError):
                await telling
            self.tell()

    def tell(self) -> None:
        """Tell Prometheus' client what has been counted since the last time. Call it on the event loop."""
        for (op, operation), counters in self._tallies.items():
            for status, count in counters.answers.items():
                self._families.requests.labels(op, operation, str(status)).inc(count)
            counters.answers.clear()
            for stage in STAGES:
                self._tell_seconds(op, operation, stage, counters.seconds[stage])
        self._families.in_flight.set(self._in_flight())
        self._families.queue.labels("lane").set(self._in_lane())
        self._families.queue.labels("batches").set(self._in_batches())
        traces, compilations = trace_counts()
        self._families.traces.inc(traces - self._told_traces)
        self._families.compilations.inc(compilations - self._told_compilations)
        self._told_traces, self._told_compilations = traces, compilations

    def text(self, accept: str) -> tuple[bytes, str]:
        """Return all that was told, and its media type: a text in the newest of Prometheus' forms that is accepted."""
        encode, media_type = choose_encoder(accept)
        return encode(self._registry), media_type

    def _tell_seconds(self, op: str, operation: str, stage: Stage, seconds: float) -> None:
        told = self._told_seconds.get((op, operation, stage), 0.0)
        if seconds > told:
            self._families.seconds[stage].labels(op, operation).inc(seconds - told)
            self._told_seconds[op, operation, stage] = seconds

    async def _keep_telling(self) -> None:
        while True:
            self.tell()
            await asyncio.sleep(EVERY_S)


def take_a_place(folder: Path) -> int:
    """Take the first place among the workers that is free, until this process ends, and return its number.

    The files of Prometheus' client are called by it, and not by the process, so that a worker that takes another's
    place goes on with its numbers, and there are never more files than places.
    """
    for number in itertools.count():
        descriptor = os.open(folder / f"{number}.lock", os.O_CREAT | os.O_WRONLY, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
        else:
            return number
    raise AssertionError("the counter is infinite")
