"""The access log, and the outermost middleware: a log line per request, and the last guard against exceptions."""

import asyncio
import itertools
import logging
import secrets
import time
from collections.abc import Sequence
from typing import Any, Protocol

import orjson
from starlette.types import ASGIApp, Receive, Scope, Send

from app.errors import InternalError, Overloaded, PullbackError
from app.execution.lifecycle import Lifecycle
from app.http.body import ClientGone
from app.http.problems import FAULT
from app.http.request import REQUEST, Request
from app.http.route import label
from app.settings import Settings
from app.telemetry.counters import FIRST_ERROR, Counters
from app.telemetry.line_writer import STDERR
from app.telemetry.prometheus import Metrics

CLIENT_GONE = 499

logger = logging.getLogger("pullback")


class Answered(Protocol):
    """A request that has been answered, as the log shows it.

    ``target`` is the path as the client wrote it. ``status`` is 499 if the client left before the response. ``began``
    is a time of ``time.perf_counter``. ``received`` and ``sent`` count the bytes of both bodies. ``client`` has the
    address and the port. ``key`` is the name of the key, empty if the request has none.
    """

    method: str
    target: str
    status: int
    began: float
    received: int
    sent: int
    client: tuple[str, int] | None
    id: bytes
    key: str


class AccessLog:
    """A line for each request, and the ids of requests. With a file of keys, the log and the metrics name the keys."""

    def __init__(self, settings: Settings, metrics: Metrics | None = None) -> None:
        """Start with a random part of all ids; ``metrics`` count the requests of each key."""
        self._as_json, self._has_keys, self._metrics = settings.log == "json", settings.keys_file is not None, metrics
        # Returns a new request id.
        self.next_id = map((secrets.token_hex(4).encode() + b"-%x").__mod__, itertools.count(1)).__next__
        self._now, self._time = 0, ""

    def answered(self, requests: Sequence[Answered], counters: Counters) -> None:
        """Count requests that have just been answered, and write their lines. Probes have one only if they fail."""
        now, lines = int(time.time() * 1000), list[bytes]()
        # Many requests end in the same millisecond.
        if now != self._now:
            # RFC 3339, in UTC, to the millisecond.
            self._now, seconds = now, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now // 1000))
            self._time = f"{seconds}.{now % 1000:03d}Z"
        for request in requests:
            counters.answered(request.status, request.began)
            if counters.is_probe and request.status < FIRST_ERROR:
                continue
            if self._has_keys and self._metrics:
                self._metrics.by_key[request.key, request.status] += 1
            host, port = request.client or ("-", 0)
            ms, client = round((time.perf_counter() - request.began) * 1000, 2), f"{host}:{port}"
            if self._as_json:
                fields: dict[str, Any] = {
                    "time": self._time,
                    "method": request.method,
                    "path": request.target,
                    "status": request.status,
                    "ms": ms,
                    "in": request.received,
                    "out": request.sent,
                    "client": client,
                    "id": request.id.decode(),
                }
                if self._has_keys:
                    fields["key"] = request.key
                lines.append(orjson.dumps(fields))
            else:
                named = f" key={request.key or '-'}" if self._has_keys else ""
                line = (
                    f"{self._time} {request.method} {request.target} {request.status} {ms}ms in={request.received} "
                    f"out={request.sent} client={client} id={request.id.decode()}{named}"
                )
                lines.append(line.encode())
        STDERR.write(lines)


class AccessLogMiddleware:
    """The outermost middleware: it makes the ``Request``, logs it when it has ended, and answers every exception.

    A ``PullbackError`` goes to the client in the dialect of the route. ``ClientGone`` is logged as 499. Any other
    exception is described only in the log, and the client gets a 500.
    """

    def __init__(self, app: ASGIApp, log: AccessLog, lifecycle: Lifecycle, counters: Counters) -> None:
        """Count requests in ``lifecycle``; ``counters`` are those of requests without a route."""
        self._app, self._log, self._lifecycle, self._counters = app, log, lifecycle, counters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive, send, self._log.next_id(), lifecycle=self._lifecycle, counters=self._counters)
        scope[REQUEST] = request
        try:
            await self._app(scope, request.receive, request.send)
        except ClientGone:
            request.status = CLIENT_GONE
        except PullbackError as error:
            await self._fail(request, error)
        except asyncio.CancelledError:
            # The server cancels unfinished requests at the end of its grace time, and closes their connections itself.
            request.is_unread = False
            await self._fail(
                request, Overloaded("the service is shutting down and cannot finish this request: try again")
            )
        except Exception:
            logger.exception("request %s failed", request.id.decode())
            await self._fail(request, InternalError(FAULT))
        finally:
            # The request refers to the scope: only the garbage collector could free this reference cycle.
            del scope[REQUEST]
            request.leave()
            self._log.answered((request,), request.counters)

    async def _fail(self, request: Request, error: PullbackError) -> None:
        # The server cuts off a response that has begun.
        if request.link.is_lost:
            request.status = CLIENT_GONE
        elif not request.status:
            # A middleware may refuse a request before it has a route.
            label(request)
            await request.fail(error)
