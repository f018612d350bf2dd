"""The outermost handler: a log line per request, the count of requests in flight, the last guard against exceptions."""

import asyncio
import itertools
import logging
import secrets
import time
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import orjson
from starlette.types import ASGIApp, Receive, Scope, Send

from app.errors import InternalError, Overloaded, PullbackError
from app.execution.lifecycle import Lifecycle
from app.http.body import ClientGone
from app.http.problems import FAULT
from app.http.request import Handler, Request, RouteTable
from app.settings import Settings
from app.telemetry.counters import FIRST_ERROR
from app.telemetry.line_writer import STDERR
from app.telemetry.prometheus import Metrics

CLIENT_GONE = 499
MAX_PATH = 300
PROBES = ("/health/", "/v2/health/", "/metrics")

logger = logging.getLogger("pullback")


def observe(
    handler: Handler,
    routes: RouteTable,
    lifespan: ASGIApp,
    settings: Settings,
    lifecycle: Lifecycle,
    *,
    metrics: Metrics | None = None,
) -> ASGIApp:
    """Return the ASGI application: it counts every request in ``lifecycle``, logs it, and answers every exception.

    ``lifespan`` gets all messages that are not about HTTP requests. With a file of keys, the log and ``metrics`` name
    the key of each request.

    A ``PullbackError`` goes to the client in the dialect of the route. ``ClientGone`` is logged as 499. Any other
    exception is described only in the log, and the client gets a 500.
    """
    by_path, as_json, has_keys = routes.by_path, settings.log == "json", settings.keys_file is not None
    prefix, numbers = secrets.token_hex(4).encode(), itertools.count(1)

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
        request = Request(scope, receive, send, route, b"%s-%x" % (prefix, next(numbers)), lifecycle=lifecycle)
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
            request.counters.answered(request.status, request.began)
            if has_keys and metrics:
                metrics.by_key[request.key, request.status] += 1
            if request.status >= FIRST_ERROR or not request.path.startswith(PROBES):
                STDERR.write(_line(request, as_json, has_keys))

    return application


def _line(request: Request, as_json: bool, has_keys: bool) -> bytes:
    """Return the log line of a request, with the path as the client wrote it."""
    raw: bytes = request.scope.get("raw_path") or quote(request.path).encode()
    path = raw[:MAX_PATH].decode("latin-1")
    if not path.isprintable():
        path = path.encode("unicode_escape").decode("ascii")
    host, port = request.scope.get("client") or ("-", 0)
    seconds, ms = time.time(), round((time.perf_counter() - request.began) * 1000, 2)
    # RFC 3339, in UTC, to the millisecond.
    now = f"{_date_time(int(seconds))}.{int(seconds % 1 * 1000):03d}Z"
    if not as_json:
        key = f" key={request.key or '-'}" if has_keys else ""
        return (
            f"{now} {request.method} {path} {request.status} {ms}ms in={request.received} out={request.sent} "
            f"client={host}:{port} id={request.id.decode()}{key}"
        ).encode()
    line: dict[str, Any] = {
        "time": now,
        "method": request.method,
        "path": path,
        "status": request.status,
        "ms": ms,
        "in": request.received,
        "out": request.sent,
        "client": f"{host}:{port}",
        "id": request.id.decode(),
    }
    if has_keys:
        line["key"] = request.key
    return orjson.dumps(line)


@lru_cache(maxsize=4)
def _date_time(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
