"""The outermost handler: a log line per request, the count of requests in flight, the last guard against exceptions."""

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
from app.http.request import Handler, Request, RouteTable
from app.settings import Settings
from app.telemetry.counters import FIRST_ERROR, Counters
from app.telemetry.line_writer import STDERR
from app.telemetry.prometheus import Metrics

CLIENT_GONE = 499

logger = logging.getLogger("pullback")


class Answered(Protocol):
    """A request that has been answered, as the log shows it."""

    @property
    def method(self) -> str:
        """The method."""
        ...

    @property
    def target(self) -> str:
        """The path as the client wrote it."""
        ...

    @property
    def status(self) -> int:
        """The status of the response, 499 if the client left before."""
        ...

    @property
    def began(self) -> float:
        """When it began, a time of ``time.perf_counter``."""
        ...

    @property
    def received(self) -> int:
        """The bytes of its body."""
        ...

    @property
    def sent(self) -> int:
        """The bytes of the body of the response."""
        ...

    @property
    def client(self) -> tuple[str, int] | None:
        """The address and the port of the client."""
        ...

    @property
    def id(self) -> bytes:
        """The request id."""
        ...

    @property
    def key(self) -> str:
        """The name of its key, empty if it has none."""
        ...


class AccessLog:
    """A line for each request, and the ids of requests. With a file of keys, the log and the metrics name the keys."""

    def __init__(self, settings: Settings, metrics: Metrics | None = None) -> None:
        """Start with a random part of all ids; ``metrics`` count the requests of each key."""
        self._as_json, self._has_keys, self._metrics = settings.log == "json", settings.keys_file is not None, metrics
        self._prefix, self._numbers = secrets.token_hex(4).encode(), itertools.count(1)
        self._now, self._time = 0, ""

    def next_id(self) -> bytes:
        """Return a new request id."""
        return b"%s-%x" % (self._prefix, next(self._numbers))

    def answered(self, requests: Sequence[Answered], counters: Counters) -> None:
        """Count requests that have just been answered, and write their lines. Probes have one only if they fail."""
        shown: list[Answered] = []
        for request in requests:
            counters.answered(request.status, request.began)
            if counters.is_probe and request.status < FIRST_ERROR:
                continue
            shown.append(request)
            if self._has_keys and self._metrics:
                self._metrics.by_key[request.key, request.status] += 1
        STDERR.write(self._lines(shown))

    def _lines(self, requests: Sequence[Answered]) -> list[bytes]:
        now, lines = int(time.time() * 1000), list[bytes]()
        # Many requests end in the same millisecond.
        if now != self._now:
            # RFC 3339, in UTC, to the millisecond.
            self._now, seconds = now, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now // 1000))
            self._time = f"{seconds}.{now % 1000:03d}Z"
        for request in requests:
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
        return lines


def observe(handler: Handler, routes: RouteTable, lifespan: ASGIApp, log: AccessLog, lifecycle: Lifecycle) -> ASGIApp:
    """Return the ASGI application: it counts the requests in ``lifecycle``, logs them, and answers every exception.

    ``lifespan`` gets all messages that are not about HTTP requests.

    A ``PullbackError`` goes to the client in the dialect of the route. ``ClientGone`` is logged as 499. Any other
    exception is described only in the log, and the client gets a 500.
    """
    by_path = routes.by_path

    async def fail(request: Request, error: PullbackError) -> None:
        # The server cuts off a response that has begun.
        if request.is_lost:
            request.status = CLIENT_GONE
        elif not request.status:
            await request.fail(error)

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await lifespan(scope, receive, send)
            return
        path: str = scope["path"]
        route = by_path.get(path) or routes.other(path)
        request = Request(scope, receive, send, route, log.next_id(), lifecycle=lifecycle)
        counted = 0 if route.counters.is_probe else 1
        lifecycle.in_flight += counted
        try:
            await handler(request)
        except ClientGone:
            request.status = CLIENT_GONE
        except PullbackError as error:
            await fail(request, error)
        except asyncio.CancelledError:
            # The server cancels unfinished requests at the end of its grace time, and closes their connections itself.
            request.is_unread = False
            await fail(request, Overloaded("the service is shutting down and cannot finish this request: try again"))
        except Exception:
            logger.exception("request %s failed", request.id.decode())
            await fail(request, InternalError(FAULT))
        finally:
            lifecycle.in_flight -= counted
            log.answered((request,), request.counters)

    return application
