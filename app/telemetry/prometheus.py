"""The metrics of the service for Prometheus, shared by several workers.

The process passes its counters to Prometheus' client at every scrape, and every second because a scrape may reach
another worker. The client keeps the numbers of several workers in files, in a shared folder; the files outlive the
workers that wrote them.
"""

import asyncio
import collections
import os
import platform
from collections.abc import AsyncGenerator, Callable, Mapping, Sized
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, values
from prometheus_client.exposition import choose_encoder

from app.runtime.devices import TENSORFLOW_VERSION
from app.runtime.traces import TRACES, trace_counts
from app.telemetry.counters import DURATIONS, PROBES, SIZES, STAGES, Distribution, RecordedCounters, Stage
from app.telemetry.line_writer import STDERR
from app.telemetry.processes import LiveWorkers, usage, worker_number
from pullback import __version__

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
EVERY_S = 1.0

SPENT: dict[Stage, str] = {
    "parse": "reading requests: the body, its tensors and the point",
    "queue": "waiting for TensorFlow, summed over requests",
    "compute": "computing: a batch counts once, whatever its size",
    "serialise": "writing responses",
}
# What processes use, by the standard names: how the numbers of several workers combine, and what they are.
USED: Mapping[str, tuple[Literal["sum", "min"], str]] = {
    "process_resident_memory_bytes": ("sum", "Resident memory, in bytes."),
    "process_virtual_memory_bytes": ("sum", "Virtual memory, in bytes."),
    "process_open_fds": ("sum", "Open file descriptors."),
    "process_max_fds": ("sum", "Limit of open file descriptors."),
    "process_start_time_seconds": ("min", "Start of the oldest worker, in seconds since the epoch."),
}
CPU = "process_cpu_seconds"


class _Families:
    """Prometheus' counters, gauges and histograms."""

    def __init__(self, registry: CollectorRegistry | None) -> None:
        """Declare them; without a registry their numbers are read from the folder."""
        by_operation = ("op", "operation")
        counter = partial(Counter, registry=registry)
        histogram = partial(Histogram, labelnames=by_operation, registry=registry)
        gauge = partial(Gauge, multiprocess_mode="sum", registry=registry)
        self.requests = counter("pullback_requests", "Answered requests.", (*by_operation, "status"))
        self.probes = counter(
            "pullback_probe_requests", "Answered probes of health and scrapes of metrics.", ("operation", "status")
        )
        self.by_key = counter("pullback_key_requests", "Answered requests by the name of their key.", ("key", "status"))
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
        self.executions = counter("pullback_executions", "Runs of an op: a batch counts once.", by_operation)
        self.in_flight = gauge("pullback_in_flight_requests", "Requests in progress.")
        self.queue = gauge(
            "pullback_queue_length",
            "Entries that PULLBACK_QUEUE limits: evaluations in batches, and work in the lane (a batch counts once).",
            ("queue",),
        )
        self.traces = counter("pullback_traces", "Traced functions created.")
        self.plans_kept = gauge("pullback_plans_kept", "Validated requests in the cache, without their tensors.")
        self.traces_kept = gauge("pullback_traces_kept", "Traced functions in the cache.")
        self.compilations = counter("pullback_xla_compilations", "Traced functions compiled by XLA.")
        self.express = counter("pullback_express_requests", "Requests answered on the fast path.")
        self.dropped = counter(
            "pullback_log_lines_dropped", "Lines of the log that were dropped: nothing read it in time."
        )
        self.cpu = counter(CPU, "CPU time, in seconds.")
        self.used = {
            name: Gauge(name, document, multiprocess_mode=mode, registry=registry)
            for name, (mode, document) in USED.items()
        }
        # The same in every worker.
        constant = partial(Gauge, multiprocess_mode="max", registry=registry)
        self.served = constant("pullback_ops_served", "Ops that are served.")
        self.unavailable = constant("pullback_ops_unavailable", "Ops that failed to load, and are not served.")
        self.build = constant(
            "pullback_build_info", "Versions, as labels; the value is 1.", ("version", "tensorflow", "python")
        )


class Metrics:
    """The metrics of this process, and of the workers that share its folder."""

    def __init__(
        self,
        in_lane: Callable[[], int],
        in_batches: Callable[[], int],
        in_flight: Callable[[], int],
        registry: CollectorRegistry,
    ) -> None:
        """Store the functions that return the work in the lane and in batches, and the requests in flight.

        ``registry`` must be empty. The application sets ``plans`` to those that it keeps, and ``express``. The folder
        is ``PROMETHEUS_MULTIPROC_DIR``; without it this process is the only one.
        """
        self._in_lane, self._in_batches, self._in_flight = in_lane, in_batches, in_flight
        self.plans: Sized = ()
        # How many requests the fast path has answered.
        self.express: Callable[[], int] = lambda: 0
        # The answers by key and status since the last scrape; the key is empty for a request without a valid one.
        self.by_key: collections.Counter[tuple[str, int]] = collections.Counter()
        self._counters: dict[tuple[str, str], RecordedCounters] = {}
        self._published_seconds: dict[tuple[str, str, Stage], float] = {}
        self._published_executions: dict[tuple[str, str], int] = {}
        self._published_values: dict[tuple[str, str, Histogram], tuple[list[int], float]] = {}
        self._published_traces = self._published_compilations = self._published_dropped = self._published_express = 0
        self._registry = registry
        disable_created_metrics()
        if folder := os.environ.get(FOLDER_VARIABLE):
            number = worker_number(Path(folder))
            values.ValueClass = values.MultiProcessValue(lambda: number)  # pyright: ignore[reportUnknownMemberType] - untyped
            LiveWorkers(self._registry, Path(folder))
        self._families = _Families(None if folder else self._registry)
        self._families.build.labels(__version__, TENSORFLOW_VERSION, platform.python_version()).set(1)
        self._published_cpu_s = 0.0

    def count_ops(self, served: int, unavailable: int) -> None:
        """Set how many ops are served, and how many failed to load."""
        self._families.served.set(served)
        self._families.unavailable.set(unavailable)

    def counters(self, op: str, operation: str) -> RecordedCounters:
        """Return the counters of an operation on an op; both become labels, so both must be known names."""
        counters = self._counters.get((op, operation))
        if counters is None:
            counters = self._counters[op, operation] = RecordedCounters(is_probe=operation in PROBES)
        return counters

    @asynccontextmanager
    async def kept_up(self) -> AsyncGenerator[None]:
        """Inside this block, pass the counts to Prometheus' client every second, and once more at its end."""

        async def publish() -> None:
            while True:
                self.tell()
                # With thousands of connections, to list the open files takes milliseconds.
                self._tell_usage(await asyncio.to_thread(usage))
                await asyncio.sleep(EVERY_S)

        publishing = asyncio.create_task(publish())
        try:
            yield
        finally:
            publishing.cancel()
            with suppress(asyncio.CancelledError):
                await publishing
            self.tell()

    def tell(self) -> None:
        """Pass the counts since the last call to Prometheus' client. Call it on the event loop."""
        for (op, operation), counters in self._counters.items():
            if counters.is_probe:
                for status, count in counters.answers.items():
                    self._families.probes.labels(operation, str(status)).inc(count)
                counters.answers.clear()
                continue
            for status, count in counters.answers.items():
                self._families.requests.labels(op, operation, str(status)).inc(count)
            counters.answers.clear()
            # Work that starts again is counted back, so the count may be lower than before for a moment.
            executions, published = counters.executions, self._published_executions.get((op, operation), 0)
            if executions > published:
                self._families.executions.labels(op, operation).inc(executions - published)
                self._published_executions[op, operation] = executions
            self._publish(self._families.durations, op, operation, counters.durations)
            self._publish(self._families.batch_sizes, op, operation, counters.sizes)
            for stage in STAGES:
                published = self._published_seconds.get((op, operation, stage), 0.0)
                seconds = counters.seconds[stage]
                if seconds > published:
                    self._families.seconds[stage].labels(op, operation).inc(seconds - published)
                    self._published_seconds[op, operation, stage] = seconds
        for (key, status), count in self.by_key.items():
            self._families.by_key.labels(key, str(status)).inc(count)
        self.by_key.clear()
        self._families.in_flight.set(self._in_flight())
        self._families.queue.labels("lane").set(self._in_lane())
        self._families.queue.labels("batches").set(self._in_batches())
        traces, compilations = trace_counts()
        self._families.plans_kept.set(len(self.plans))
        self._families.traces_kept.set(len(TRACES))
        self._families.traces.inc(traces - self._published_traces)
        self._families.compilations.inc(compilations - self._published_compilations)
        self._published_traces, self._published_compilations = traces, compilations
        self._families.express.inc((express := self.express()) - self._published_express)
        self._published_express = express
        self._families.dropped.inc((dropped := STDERR.dropped) - self._published_dropped)
        self._published_dropped = dropped

    def _tell_usage(self, used: Mapping[str, float]) -> None:
        for name, gauge in self._families.used.items():
            gauge.set(used.get(name, 0.0))
        cpu_s = used.get(f"{CPU}_total", 0.0)
        self._families.cpu.inc(max(0.0, cpu_s - self._published_cpu_s))
        self._published_cpu_s = max(cpu_s, self._published_cpu_s)

    def _publish(self, histogram: Histogram, op: str, operation: str, values: Distribution) -> None:
        """Add the values since the last call to a histogram; its own method takes them one by one."""
        counts, total = list(values.counts), values.sum
        key = op, operation, histogram
        before, total_before = self._published_values.get(key, ([0] * len(counts), 0.0))
        if counts == before:
            return
        self._published_values[key] = counts, total
        child: Any = histogram.labels(op, operation)
        child._sum.inc(total - total_before)
        for bucket, count, count_before in zip(child._buckets, counts, before, strict=True):
            if count > count_before:
                bucket.inc(count - count_before)

    def text(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics as text, and its media type: the newest of Prometheus' formats that is accepted."""
        encode, media_type = choose_encoder(accept)
        return encode(self._registry), media_type
