"""The outermost handler: a log line per request, the count of requests in flight, the last guard against exceptions."""

import asyncio
import itertools
import logging
import secrets
import time
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote

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
MAX_PATH = 300
PROBES = ("/health/", "/v2/health/", "/metrics")

logger = logging.getLogger("pullback")


class Answered(NamedTuple):
    """A request that has been answered, as the log shows it.

    ``path`` is as the client wrote it. ``began`` is a time of ``time.perf_counter``. ``received`` and ``sent`` count
    the bytes of the bodies. ``key`` is the name of the key, empty if there is none.
    """

    method: str
    path: str
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
        self._prefix, self._numbers = secrets.token_hex(4).encode(), itertools.count(1)

    def next_id(self) -> bytes:
        """Return a new request id."""
        return b"%s-%x" % (self._prefix, next(self._numbers))

    def answered(self, request: Answered, counters: Counters) -> None:
        """Count a request that has been answered, and write its line. Probes have one only if they fail."""
        counters.answered(request.status, request.began)
        if self._has_keys and self._metrics:
            self._metrics.by_key[request.key, request.status] += 1
        if request.status >= FIRST_ERROR or not request.path.startswith(PROBES):
            STDERR.write(self._line(request))

    def _line(self, request: Answered) -> bytes:
        method, path, status, began, received, sent, client, request_id, key = request
        host, port = client or ("-", 0)
        seconds, ms = time.time(), round((time.perf_counter() - began) * 1000, 2)
        # RFC 3339, in UTC, to the millisecond.
        now = f"{_date_time(int(seconds))}.{int(seconds % 1 * 1000):03d}Z"
        if not self._as_json:
            named = f" key={key or '-'}" if self._has_keys else ""
            return (
                f"{now} {method} {path} {status} {ms}ms in={received} out={sent} "
                f"client={host}:{port} id={request_id.decode()}{named}"
            ).encode()
        line: dict[str, Any] = {
            "time": now,
            "method": method,
            "path": path,
            "status": status,
            "ms": ms,
            "in": received,
            "out": sent,
            "client": f"{host}:{port}",
            "id": request_id.decode(),
        }
        if self._has_keys:
            line["key"] = key
        return orjson.dumps(line)


def observe(handler: Handler, routes: RouteTable, lifespan: ASGIApp, log: AccessLog, lifecycle: Lifecycle) -> ASGIApp:
    """Return the ASGI application: it counts every request in ``lifecycle``, logs it, and answers every exception.

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
        lifecycle.in_flight += 1
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
            lifecycle.in_flight -= 1
            line = Answered(
                request.method,
                _path(request.scope),
                request.status,
                request.began,
                request.received,
                request.sent,
                request.scope.get("client"),
                request.id,
                request.key,
            )
            log.answered(line, request.counters)

    return application


def _path(scope: Scope) -> str:
    """Return the path of a request as the client wrote it."""
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    path = raw[:MAX_PATH].decode("latin-1")
    return path if path.isprintable() else path.encode("unicode_escape").decode("ascii")


@lru_cache(maxsize=4)
def _date_time(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
