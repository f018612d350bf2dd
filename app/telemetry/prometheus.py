"""The metrics of the service for Prometheus, shared by several workers.

A metric is declared once, with the function that reads its value. The process passes the values to Prometheus' client
at every scrape, and every second because a scrape may reach another worker. The client keeps the numbers of several
workers in files, in a shared folder; the files outlive the workers that wrote them.
"""

import asyncio
import collections
import errno
import fcntl
import itertools
import os
import platform
import struct
from bisect import bisect_left
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    ProcessCollector,
    disable_created_metrics,
    values,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar, Sample

from app.autodiff.padded_rows import shape_counts
from app.runtime.devices import TENSORFLOW_VERSION
from app.runtime.traces import STOPS, TRACES, Stop
from app.telemetry.accounts import Accounts
from app.telemetry.counters import DURATIONS, SIZES, Counters, CounterTable, Distribution
from app.telemetry.line_writer import STDERR
from app.telemetry.stage_times import Stage
from pullback import __version__

# struct flock of <fcntl.h>. The locks are of an open file: to close another copy of the file does not release them.
FLOCK = "hhqqi"
_WHOLE = partial(struct.pack, FLOCK)

_own = ProcessCollector(registry=None)
Select: TypeAlias = Callable[[Counters], Distribution]
Read: TypeAlias = Callable[[], float]
Combined: TypeAlias = Literal["sum", "min", "max"]
"""How the numbers of several workers combine."""

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
EVERY_S = 1.0

SPENT: Mapping[Stage, str] = {
    "parse": "reading requests: the body, its tensors and the point",
    "queue": "waiting for TensorFlow, summed over requests",
    "compute": "computing: a batch counts once, whatever its size",
    "serialise": "writing responses",
}
# What a process uses, by the standard names.
USED: Mapping[str, tuple[Combined, str]] = {
    "process_resident_memory_bytes": ("sum", "Resident memory, in bytes."),
    "process_virtual_memory_bytes": ("sum", "Virtual memory, in bytes."),
    "process_open_fds": ("sum", "Open file descriptors."),
    "process_max_fds": ("sum", "Limit of open file descriptors."),
    "process_start_time_seconds": ("min", "Start of the oldest worker, in seconds since the epoch."),
}


DURATION, SIZE = "pullback_request_duration_seconds", "pullback_batch_size"
EXEMPLARS: Mapping[str, Select] = {DURATION: attrgetter("durations"), SIZE: attrgetter("sizes")}
CPU = "process_cpu_seconds"
VERSIONS = {"version": __version__, "tensorflow": TENSORFLOW_VERSION, "python": platform.python_version()}


# Each worker has the first free number, so that a worker that replaces another continues its counts, and the number
# of files stays bounded.
def worker_number(folder: Path) -> int:
    """Return the first free number among the workers, locked until this process ends."""
    for number in itertools.count():
        descriptor = os.open(_lock_of(folder, number), os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _WHOLE(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        except OSError as error:
            os.close(descriptor)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
        else:
            return number
    raise AssertionError("the counter is infinite")


def lives(folder: Path, number: str) -> bool:
    """Return whether the worker with a number lives, without taking its lock."""
    try:
        descriptor = os.open(_lock_of(folder, number), os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        found = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _WHOLE(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        return struct.unpack_from(FLOCK, found)[0] != fcntl.F_UNLCK
    finally:
        os.close(descriptor)


class LiveWorkers(MultiProcessCollector):
    """The numbers of all workers together: the counts of those that have ended too, but not their gauges."""

    def __init__(self, registry: Any, folder: Path) -> None:
        """Register the collector of a folder."""
        self._folder = folder
        super().__init__(registry, str(folder))  # pyright: ignore[reportUnknownMemberType] - untyped

    def collect(self) -> Iterable[Metric]:
        """Return the metrics."""
        gauges = list(self._folder.glob("gauge_*.db"))
        ended = {path for path in gauges if not lives(self._folder, path.stem.rpartition("_")[2])}
        current = [str(path) for path in self._folder.glob("*.db") if path not in ended]
        merged = self.merge(current)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - untyped
        return cast(Iterable[Metric], merged)


def usage() -> Mapping[str, float]:
    """Return what this process uses, by the names of Prometheus' standard metrics of a process."""
    return {sample.name: sample.value for metric in _own.collect() for sample in metric.samples}


def _lock_of(folder: Path, number: int | str) -> Path:
    return folder / f"{number}.lock"


# Prometheus' client keeps none where several workers share their numbers. Here those of the worker that answers a
# scrape are added to the histograms of all.
class WithExemplars(Collector):
    """The metrics of ``source``, with exemplars in the histograms that ``selected`` names."""

    def __init__(self, source: Collector, table: CounterTable, selected: Mapping[str, Select]) -> None:
        """Take the exemplars of the distributions in ``table``."""
        self._source, self._table, self._selected = source, table, selected

    def collect(self) -> Iterable[Metric]:
        """Return the metrics."""
        for metric in self._source.collect():
            if (select := self._selected.get(metric.name)) is not None:
                metric.samples = [self._with_exemplar(sample, select) for sample in metric.samples]
            yield metric

    def _with_exemplar(self, sample: Sample, select: Select) -> Sample:
        labels = sample.labels
        counters = self._table.get((labels.get("op", ""), labels.get("operation", "")))
        if counters is None or "le" not in labels:
            return sample
        values = select(counters)
        found = values.exemplars.get(bisect_left(values.bounds, float(labels["le"])))
        if found is None:
            return sample
        return sample._replace(
            exemplar=Exemplar({"trace_id": found.trace_id, "span_id": found.span_id}, found.value, found.time)
        )


class _Total:
    """A counter of Prometheus that follows totals of ours, by their labels."""

    def __init__(self, counter: Counter) -> None:
        """Start with nothing published."""
        self._counter, self._published = counter, dict[tuple[str, ...], float]()

    def publish(self, total: float, *labels: str, starts_at_zero: bool = False) -> None:
        """Add what a total has grown by. It may fall for a moment: work that starts again is counted back."""
        published = self._published.get(labels, -1 if starts_at_zero else 0)
        if total > published:
            (self._counter.labels(*labels) if labels else self._counter).inc(total - max(published, 0))
            self._published[labels] = total


def _publish_stopped(total: _Total, reason: Stop) -> None:
    total.publish(TRACES.stopped[reason], reason, starts_at_zero=True)


class _Buckets:
    """A histogram of Prometheus that follows distributions of ours, by their labels."""

    def __init__(self, histogram: Histogram) -> None:
        """Start with nothing published."""
        self._histogram, self._published = histogram, dict[tuple[str, ...], tuple[list[int], float]]()

    def publish(self, values: Distribution, *labels: str) -> None:
        """Add the values since the last call; the histogram's own method takes them one by one."""
        counts, total = list(values.counts), values.sum
        before, total_before = self._published.get(labels, ([0] * len(counts), 0.0))
        if counts == before:
            return
        self._published[labels] = counts, total
        child: Any = self._histogram.labels(*labels)
        child._sum.inc(total - total_before)
        for bucket, count, count_before in zip(child._buckets, counts, before, strict=True):
            if count > count_before:
                bucket.inc(count - count_before)


class Metrics:
    """The metrics of this process, and of the workers that share its folder."""

    def __init__(self, in_scheduler: Read, in_batches: Read, in_flight: Read) -> None:
        """Declare the metrics, with the work in the scheduler and in batches, and the requests in flight.

        The folder is ``PROMETHEUS_MULTIPROC_DIR``; without it this process is the only one.
        """
        # Those of the keys, once there are any.
        self.accounts = Accounts()
        self._table = CounterTable()
        self._usage = collections.defaultdict[str, float](float)
        self._registry = CollectorRegistry()
        disable_created_metrics()
        if folder := os.environ.get(FOLDER_VARIABLE):
            number = worker_number(Path(folder))
            values.ValueClass = values.MultiProcessValue(lambda: number)  # pyright: ignore[reportUnknownMemberType] - untyped
            LiveWorkers(self._registry, Path(folder))
        # The numbers in a folder are those of all workers.
        self._declared_in = None if folder else self._registry
        self._publishers = [self._responses()]
        self.gauge("pullback_in_flight_requests", "Requests in progress.", in_flight)
        document = (
            "What PULLBACK_QUEUE limits: evaluations in batches, and work in the scheduler (a batch counts once)."
        )
        queue = self._gauge("pullback_queue_length", document, "sum", ("queue",))
        self._publishers += [
            lambda: queue.labels("lane").set(in_scheduler()),
            lambda: queue.labels("batches").set(in_batches()),
        ]
        self.counter("pullback_traces", "Traced functions created.", TRACES.made.total)
        self.gauge("pullback_traces_kept", "Traced functions in the cache.", lambda: len(TRACES))
        document = "Traces that were stopped, by what they had too little of: deadline, time or nodes."
        stopped = self._total("pullback_traces_stopped", document, "reason")
        self._publishers += [partial(_publish_stopped, stopped, reason) for reason in STOPS]
        document = "Traces that go on although their callers have gone."
        self.gauge("pullback_traces_in_background", document, lambda: TRACES.in_background)
        self.counter("pullback_xla_compilations", "Traced functions compiled by XLA.", TRACES.compiled.total)
        document = "Shapes of rows that were tried, by whether their rows share calls."
        shapes = self._gauge("pullback_row_shapes", document, "max", ("op", "joined"))
        self._publishers.append(partial(self._publish_shapes, shapes, set[tuple[str, bool]]()))
        document = "Lines of the log that were dropped: nothing read it in time, or it could not be written."
        self.counter("pullback_log_lines_dropped", document, lambda: STDERR.dropped)
        self.counter(CPU, "CPU time, in seconds.", partial(self._usage.__getitem__, f"{CPU}_total"))
        for name, (combined, document) in USED.items():
            self.gauge(name, document, partial(self._usage.__getitem__, name), combined)

    def counter(self, name: str, document: str, read: Read) -> None:
        """Declare the counter of a total, which ``read`` returns."""
        total = self._total(name, document)
        self._publishers.append(lambda: total.publish(read()))

    def gauge(self, name: str, document: str, read: Read, combined: Combined = "sum") -> None:
        """Declare the gauge of a number, which ``read`` returns."""
        gauge = self._gauge(name, document, combined)
        self._publishers.append(lambda: gauge.set(read()))

    def _total(self, name: str, document: str, *labels: str) -> _Total:
        return _Total(Counter(name, document, labels, registry=self._declared_in))

    def _gauge(self, name: str, document: str, combined: Combined, labels: Sequence[str] = ()) -> Gauge:
        return Gauge(name, document, labels, multiprocess_mode=combined, registry=self._declared_in)

    def _responses(self) -> Callable[[], None]:
        """Declare the metrics of responses and of operations; return the function that publishes them."""
        labels, histogram = ("op", "operation"), partial(Histogram, registry=self._declared_in)
        requests = self._total("pullback_requests", "Answered requests.", *labels, "status")
        document = "Answered probes of health and scrapes of metrics."
        probes = self._total("pullback_probe_requests", document, "operation", "status")
        by_key = self._total("pullback_key_requests", "Answered requests by the name of their key.", "key", "status")
        document = "Requests that were refused for their key or a limit of it."
        refused = self._total("pullback_key_refusals", document, "key", "reason")
        document = "Seconds that requests with a key have waited for TensorFlow."
        queued = self._total("pullback_key_queue_seconds", document, "key")
        document = "Seconds spent computing for a key: its share of each batch, its checks and its jobs."
        computed = self._total("pullback_key_compute_seconds", document, "key")
        document = "Seconds from a request's first byte to the end of its response."
        durations = _Buckets(histogram(DURATION, document, labels, buckets=DURATIONS))
        document = "Requests that share one TensorFlow call."
        sizes = _Buckets(histogram(SIZE, document, labels, buckets=SIZES))
        executions = self._total("pullback_executions", "Runs of an op: a batch counts once.", *labels)
        seconds: dict[Stage, _Total] = {
            stage: self._total(f"pullback_{stage}_seconds", f"Seconds spent {what}.", *labels)
            for stage, what in SPENT.items()
        }

        def publish() -> None:
            for (op, operation), counters in self._table.copy().items():
                responses, values = (probes, (operation,)) if counters.is_probe else (requests, (op, operation))
                for status, count in counters.answers.items():
                    responses.publish(count, *values, str(status))
                if not counters.is_probe:
                    executions.publish(counters.executions, op, operation)
                    durations.publish(counters.durations, op, operation)
                    sizes.publish(counters.sizes, op, operation)
                    for stage, total in seconds.items():
                        total.publish(counters.seconds[stage], op, operation)
            for key, used in self.accounts.usages.items():
                for status, count in used.answers.items():
                    by_key.publish(count, key, str(status))
                for reason, count in used.refused.items():
                    refused.publish(count, key, reason)
                queued.publish(used.queue_s, key)
                computed.publish(used.compute_s, key)

        return publish

    @staticmethod
    def _publish_shapes(gauge: Gauge, published: set[tuple[str, bool]]) -> None:
        counts = shape_counts()
        published |= counts.keys()
        for op, is_joined in published:
            gauge.labels(op, str(is_joined).lower()).set(counts[op, is_joined])

    def describe(self, served: int, unavailable: int, pages: str) -> None:
        """Declare how many ops are served, how many failed to load, and the digest of their pages.

        They are the same in every worker.
        """
        labels = {**VERSIONS, "pages": pages}
        document = "Versions and the digest of the pages, as labels; the value is 1."
        self._gauge("pullback_build_info", document, "max", tuple(labels)).labels(**labels).set(1)
        self.gauge("pullback_ops_served", "Ops that are served.", lambda: served, "max")
        self.gauge(
            "pullback_ops_unavailable", "Ops that failed to load, and are not served.", lambda: unavailable, "max"
        )

    def counters(self, op: str, operation: str) -> Counters:
        """Return the counters of an operation on an op; both become labels, so both must be known names."""
        return self._table.of(op, operation)

    @asynccontextmanager
    async def publishing(self) -> AsyncGenerator[None]:
        """Inside this block, publish every second, and once more at its end."""

        async def keep_publishing() -> None:
            while True:
                # With thousands of connections, to list the open files takes milliseconds.
                self._usage.update(await asyncio.to_thread(usage))
                self.publish()
                await asyncio.sleep(EVERY_S)

        task = asyncio.create_task(keep_publishing())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            self.publish()

    def publish(self) -> None:
        """Pass the values to Prometheus' client. Call it on the event loop."""
        for publish in self._publishers:
            publish()

    def text(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics as text, and its media type: the newest of Prometheus' formats that is accepted."""
        encode, media_type = choose_encoder(accept)
        return encode(WithExemplars(self._registry, self._table, EXEMPLARS)), media_type
