"""The access log: a line for each request."""

import itertools
import secrets
import time
from collections.abc import Sequence
from typing import Any, Protocol

import orjson

from app.settings import Settings
from app.telemetry.accounts import Account
from app.telemetry.counters import Counters
from app.telemetry.line_writer import STDERR
from app.telemetry.stage_times import TracedAnswer, Tracing, parent_of

FIRST_ERROR, CLIENT_GONE = 400, 499
"""The first status that is an error, and that of a request whose client left before the response."""


class Answered(TracedAnswer, Protocol):
    """A request that has been answered, as the log shows it.

    ``target`` is the path as the client wrote it. ``status`` is 499 if the client left before the response. ``began``
    is the arrival of its first byte, a time of ``time.perf_counter``. ``received`` and ``sent`` count the bytes of both
    bodies. ``client`` has the address and the port. ``key`` is the name of the key, empty if the request has none, and
    ``account`` its account. The rest is that of ``TracedAnswer``.
    """

    received: int
    sent: int
    client: tuple[str, int] | None
    key: str
    account: Account


class AccessLog:
    """A line for each request, and the ids of requests. With a file of keys, it names the keys, and counts answers.

    Requests that ``tracing`` has begun end here.
    """

    def __init__(self, settings: Settings, tracing: Tracing | None = None) -> None:
        """Start with a random part of all ids."""
        self.tracing = tracing
        self._as_json, self._has_keys = settings.log == "json", settings.keys_file is not None
        # Returns a new request id.
        self.next_id = map((secrets.token_hex(4).encode() + b"-%x").__mod__, itertools.count(1)).__next__
        self._second, self._time = 0, ""

    def answered(self, requests: Sequence[Answered], counters: Counters) -> None:
        """Count requests that have just been answered, and write their lines. Probes have one only if they fail."""
        now = int(time.time() * 1000)
        lines: list[bytes] = []
        # Many requests end in the same second.
        if now // 1000 != self._second:
            self._second = now // 1000
            self._time = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(self._second))
        # RFC 3339, in UTC, to the millisecond.
        ended = f"{self._time}.{now % 1000:03d}Z"
        for request in requests:
            counters.answered(request.status, request.began, request.times)
            if counters.is_probe and request.status < FIRST_ERROR:
                continue
            if self.tracing is not None and request.times is not None:
                self.tracing.end(request, request.times, counters.op, counters.operation, counters.latest)
            if self._has_keys:
                request.account.usage.answers[request.status] += 1
            host, port = request.client or ("-", 0)
            ms = (counters.latest - request.began) * 1000
            if self._as_json:
                fields: dict[str, Any] = {
                    "time": ended,
                    "method": request.method,
                    "path": request.target,
                    "status": request.status,
                    "ms": round(ms, 2),
                    "in": request.received,
                    "out": request.sent,
                    "client": f"{host}:{port}",
                    "id": request.id.decode(),
                }
                if self._has_keys:
                    fields["key"] = request.key
                if request.times is not None:
                    fields |= {"trace_id": request.times.trace_id, "span_id": request.times.span_id}
                elif (parent := parent_of(request.traceparent)) is not None:
                    fields |= {"trace_id": parent.trace_id, "parent_span_id": parent.span_id}
                lines.append(orjson.dumps(fields))
            else:
                named = f" key={request.key or '-'}" if self._has_keys else ""
                line = (
                    f"{ended} {request.method} {request.target} {request.status} {ms:.2f}ms in={request.received} "
                    f"out={request.sent} client={host}:{port} id={request.id.decode()}{named}"
                )
                lines.append(line.encode())
        STDERR.write(lines)
