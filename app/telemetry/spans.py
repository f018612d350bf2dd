"""The spans of requests, by the SDK of OpenTelemetry, which exports them by OTLP on a thread of its own.

Only a process with ``PULLBACK_OTEL=1`` imports this module. Spans are made when a request has ended, from the times
that ``counters`` have measured. OpenTelemetry's variables (``OTEL_*``) choose the collector, the sampler and limits.

A request is a span of kind server, and each of its stages a span below it. The span of a batch is the root of a trace
of its own, with links to the spans of its members, because a span has one parent, and a batch is the work of several
requests. The spans of the stage ``compute`` link to it.
"""

import logging
import math
import threading
import time
from uuid import uuid4

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler
from opentelemetry.semconv.attributes import error_attributes, http_attributes, service_attributes, url_attributes
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    TraceState,
    set_span_in_context,
)
from opentelemetry.util.types import AttributeValue

from app.errors import CannotStart
from app.telemetry.stage_times import NS, Batch, StageTimes, Traced, TracedAnswer, parent_of, state_of
from pullback import __version__

logger = logging.getLogger("pullback")

NAME = "pullback"
# Others are no names of spans: a client may invent them.
METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"))
OTHER = "_OTHER"
CLIENT_GONE, FIRST_SERVER_ERROR = 499, 500
# How long the end of the process waits for the last spans.
FLUSH_S, MINUTE_S = 2.0, 60.0
# The most members that the span of a batch links to; ``pullback.batch.size`` counts all.
MAX_LINKS = 128


class Spans:
    """The spans of this process; everything but the export runs on the event loop."""

    def __init__(self) -> None:
        """Start the thread that exports; raises ``CannotStart`` if a variable of OpenTelemetry is invalid."""
        # A malformed header of a client is no news for the operator.
        logging.getLogger("opentelemetry.trace.span").setLevel(logging.ERROR)
        logging.getLogger(OTLPSpanExporter.__module__).addFilter(_OneAMinute())
        try:
            self._processor = BatchSpanProcessor(OTLPSpanExporter())
        except (ValueError, OSError) as error:
            raise CannotStart(f"PULLBACK_OTEL: expected valid variables OTEL_*: {error}") from error
        resource = _resource()
        self._requests = self._provider(resource, None).get_tracer(NAME, __version__)
        # A batch has been sampled if one of its members has.
        self._batches = self._provider(resource, ALWAYS_ON).get_tracer(NAME, __version__)

    def begin(self, request: Traced) -> StageTimes | None:
        """Return the times of a request that is traced, ``None`` if it is not sampled."""
        try:
            return self._begin(request)
        except Exception:  # of a sampler that the operator has installed, for one
            logger.exception("a request is not traced")
            return None

    def end(self, request: TracedAnswer, times: StageTimes, op: str, operation: str, ended: float) -> None:
        """Make the spans of a request that has been answered, from its times."""
        try:
            self._end(request, times, op, operation, ended)
        except Exception:
            logger.exception("request %s has no spans", request.id.decode())

    def close(self) -> None:
        """Send the spans that are left, in a bounded time."""
        # Without a collector, the SDK would wait for half a minute.
        thread = threading.Thread(target=self._processor.shutdown, name="spans", daemon=True)
        thread.start()
        thread.join(FLUSH_S)

    def _begin(self, request: Traced) -> StageTimes | None:
        method = request.method if request.method in METHODS else OTHER
        # The clock of the spans of a request must not be set meanwhile.
        epoch = time.time_ns() - time.perf_counter_ns()
        span = self._requests.start_span(
            method,
            _context(request),
            SpanKind.SERVER,
            {http_attributes.HTTP_REQUEST_METHOD: method},
            start_time=epoch + round(request.began * NS),
        )
        own = span.get_span_context()
        if not (span.is_recording() and own.trace_flags.sampled):
            return None
        return StageTimes(span, epoch, f"{own.trace_id:032x}", f"{own.span_id:016x}")

    def _end(self, request: TracedAnswer, times: StageTimes, op: str, operation: str, ended: float) -> None:
        span: Span = times.span
        method = request.method if request.method in METHODS else "HTTP"
        span.update_name(f"{method} {request.route}" if request.route else method)
        attributes: dict[str, AttributeValue] = {
            url_attributes.URL_SCHEME: request.scheme,
            url_attributes.URL_PATH: request.target,
            "pullback.request.id": request.id.decode(),
            "pullback.operation": operation,
        }
        if op:
            attributes["pullback.op"] = op
        if request.route:
            attributes[http_attributes.HTTP_ROUTE] = request.route
        if request.status == CLIENT_GONE:
            attributes[error_attributes.ERROR_TYPE] = "client_gone"
            span.set_status(StatusCode.ERROR, "the client disconnected before the response")
        else:
            attributes[http_attributes.HTTP_RESPONSE_STATUS_CODE] = request.status
            if request.status >= FIRST_SERVER_ERROR:
                attributes[error_attributes.ERROR_TYPE] = str(request.status)
                span.set_status(StatusCode.ERROR)
        if times.dropped:
            attributes["pullback.stages.dropped"] = times.dropped
        span.set_attributes(attributes)
        self._make_stages(span, times)
        span.end(times.epoch_ns(ended))

    def _make_stages(self, span: Span, times: StageTimes) -> None:
        below = set_span_in_context(span, Context())
        for stage, began, ended, batch in times.intervals:
            links = [Link(self._context_of(batch, times))] if batch is not None else []
            part = self._batches.start_span(stage, below, links=links, start_time=times.epoch_ns(began))
            part.end(times.epoch_ns(ended))
        # The batch refers to its members, and they to the batch.
        times.intervals.clear()

    def _context_of(self, batch: Batch, times: StageTimes) -> SpanContext:
        """Return what identifies the span of a batch, which the first member that has been answered makes."""
        if batch.context is None:
            links = [Link(member.span.get_span_context()) for member in batch.members[:MAX_LINKS]]
            attributes: dict[str, AttributeValue] = {
                "pullback.op": batch.op,
                "pullback.operation": batch.operation,
                "pullback.batch.size": batch.size,
            }
            began, ended = times.epoch_ns(batch.began), times.epoch_ns(batch.ended)
            span = self._batches.start_span("batch", Context(), attributes=attributes, links=links, start_time=began)
            run = self._batches.start_span("TensorFlow", set_span_in_context(span, Context()), start_time=began)
            run.end(ended)
            span.end(ended)
            batch.context = span.get_span_context()
            batch.members.clear()
        return batch.context

    def _provider(self, resource: Resource, sampler: Sampler | None) -> TracerProvider:
        """Return a provider of spans, which are sampled as the environment says if there is no ``sampler``."""
        provider = TracerProvider(sampler, resource, shutdown_on_exit=False)
        provider.add_span_processor(self._processor)
        return provider


class _OneAMinute(logging.Filter):
    """Lets one record pass in a minute: without a collector, the exporter warns at each of its attempts."""

    def __init__(self) -> None:
        """Have passed none."""
        super().__init__()
        self._next = -math.inf

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is the first of its minute."""
        if record.created < self._next:
            return False
        self._next = record.created + MINUTE_S
        return True


def _resource() -> Resource:
    """Return what describes this process; the environment comes before what we know."""
    own: dict[str, AttributeValue] = {
        service_attributes.SERVICE_NAME: NAME,
        service_attributes.SERVICE_VERSION: __version__,
        service_attributes.SERVICE_INSTANCE_ID: str(uuid4()),
    }
    return Resource.create({**own, **OTELResourceDetector().detect().attributes})


def _context(request: Traced) -> Context:
    """Return the context of the caller's span, an empty one if the request names none."""
    parent = parent_of(request.traceparent)
    if parent is None:
        return Context()
    state = state_of(request.tracestate)
    context = SpanContext(
        int(parent.trace_id, 16),
        int(parent.span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(parent.flags),
        trace_state=TraceState.from_header([state]) if state else None,
    )
    return set_span_in_context(NonRecordingSpan(context), Context())
