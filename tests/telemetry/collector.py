"""A collector of spans, which takes OTLP over HTTP and keeps everything."""

import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.patience import PATIENCE_S, PAUSE_S


class Sent(NamedTuple):
    """A span as it was exported: ids in hexadecimal, times in nanoseconds, links as pairs of ids."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    status: int
    began: int
    ended: int
    attributes: dict[str, Any]
    links: list[tuple[str, str]]
    resource: dict[str, Any]
    state: str

    @property
    def ids(self) -> tuple[str, str]:
        return self.trace_id, self.span_id


class Collector(ThreadingHTTPServer):
    """The collector; ``spans`` are those of all processes."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.spans: list[Sent] = []
        self.paths = set[str]()
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def stop(self) -> None:
        self.shutdown()
        self._thread.join(PATIENCE_S)
        self.server_close()

    def wait_for(self, wanted: Callable[[Sent], bool], count: int = 1) -> list[Sent]:
        """Return the spans that are wanted, once there are so many: they are exported in the background."""
        until = time.monotonic() + PATIENCE_S
        while len(found := [span for span in [*self.spans] if wanted(span)]) < count:
            assert time.monotonic() < until, f"expected {count} spans, got {found} of {len(self.spans)}"
            time.sleep(PAUSE_S)
        return found

    def trace(self, trace_id: str) -> list[Sent]:
        """Return the spans of a trace, once its server has ended: its stages were exported before."""
        self.wait_for(lambda span: span.trace_id == trace_id and span.kind == 2)
        return [span for span in self.spans if span.trace_id == trace_id]


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.paths.add(self.path)
        for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = _plain(of_resource.resource.attributes)
            for of_scope in of_resource.scope_spans:
                self.server.spans += [_sent(span, resource) for span in of_scope.spans]
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        del format, args


def _sent(span: Any, resource: dict[str, Any]) -> Sent:
    return Sent(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.kind,
        span.status.code,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        _plain(span.attributes),
        [(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
        resource,
        span.trace_state,
    )


def _plain(attributes: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in attributes}
