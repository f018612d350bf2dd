"""Around everything: one log line a request, the count of those in flight, and the last guard against exceptions."""

import asyncio
import itertools
import logging
import re
import secrets
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.errors import InternalError, Overloaded, PullbackError
from app.execution.lifecycle import Lifecycle
from app.http.body import ClientGone, has_body
from app.http.problems import FAULT, Dialect, problem, send_problem
from app.settings import Settings
from app.telemetry.counters import FIRST_ERROR, TALLY, Counters, not_recorded
from app.telemetry.log import stamp, write_line

CLIENT_GONE = 499
MAX_PATH = 300
PROBES = ("/health/", "/v2/health/", "/metrics")
REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")

Tells = Callable[[str], Dialect]
"""Gives, for a path, how errors are told there."""

logger = logging.getLogger("pullback")


class Exchange:
    """One request and its answer, watched as they pass."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, dialect_of: Tells, request_id: bytes) -> None:
        """Start the clock; a request id that the client brings is used in place of ``request_id``."""
        headers = dict(scope["headers"])
        brought = headers.get(b"x-request-id", b"")
        self.request_id: bytes = brought if brought and REQUEST_ID.fullmatch(brought) else request_id
        self.began, self.status, self.came, self.went = time.perf_counter(), 0, 0, 0
        self._scope, self._receive, self._send, self._dialect_of = scope, receive, send, dialect_of
        self._unread = has_body(headers)

    async def receive(self) -> Message:
        """Hand on a message to the application."""
        message = await self._receive()
        self.came += len(message.get("body", b""))
        self._unread = self._unread and message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        """Hand on a message to the client, the request id with its headers."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), (b"x-request-id", self.request_id)]
        else:
            self.went += len(message.get("body", b""))
        await self._send(message)

    async def fail(self, error: PullbackError) -> None:
        """Answer with ``error``, unless an answer has begun: the server then cuts that one off."""
        if not self.status:
            unread = self.receive if self._unread else None
            await send_problem(error, self._scope, self.send, self._dialect_of(self._scope["path"]), unread=unread)

    async def give_up(self) -> None:
        """Answer a request that the server has cancelled, which closes its connection by itself."""
        if not self.status:
            error = Overloaded("the service is shutting down and cannot finish this request: try again")
            await send_problem(error, self._scope, self.send, self._dialect_of(self._scope["path"]))

    def report(self, as_json: bool) -> None:
        """Write the line of this request; probes that go well leave none."""
        scope = self._scope
        if self.status < FIRST_ERROR and scope["path"].startswith(PROBES):
            return
        now, path, client = stamp(time.time()), _path(scope), _client(scope)
        ms = round((time.perf_counter() - self.began) * 1000, 2)
        if as_json:
            line: dict[str, Any] = {
                "time": now,
                "method": scope["method"],
                "path": path,
                "status": self.status,
                "ms": ms,
                "in": self.came,
                "out": self.went,
                "client": client,
                "id": self.request_id.decode(),
            }
            write_line(orjson.dumps(line))
        else:
            write_line(
                f"{now} {scope['method']} {path} {self.status} {ms}ms in={self.came} out={self.went} "
                f"client={client} id={self.request_id.decode()}".encode()
            )


def observe(
    app: ASGIApp,
    settings: Settings,
    lifecycle: Lifecycle,
    counters_of: Callable[[str], Counters] = not_recorded,
    dialect_of: Tells = lambda path: problem,
) -> ASGIApp:
    """Return ``app`` watched: every request counted in ``lifecycle`` and logged, every exception answered.

    ``counters_of`` gives, for a path, where its answers are counted, ``dialect_of`` how its errors are told.

    A ``PullbackError`` from within is told to the client; ``ClientGone`` is logged as 499; anything else is told to the
    log alone, and the client gets a 500.
    """
    as_json, prefix, numbers = settings.log == "json", secrets.token_hex(4), itertools.count(1)

    async def observed(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        exchange = Exchange(scope, receive, send, dialect_of, b"%s-%x" % (prefix.encode(), next(numbers)))
        lifecycle.in_flight += 1
        try:
            await _guarded(app, scope, exchange)
        finally:
            lifecycle.in_flight -= 1
            counters: Counters = scope.get(TALLY) or counters_of(scope["path"])
            counters.answered(exchange.status, exchange.began)
            exchange.report(as_json)

    return observed


async def _guarded(app: ASGIApp, scope: Scope, exchange: Exchange) -> None:
    try:
        await app(scope, exchange.receive, exchange.send)
    except ClientGone:
        exchange.status = exchange.status or CLIENT_GONE
    except PullbackError as error:
        await exchange.fail(error)
    except asyncio.CancelledError:
        # The server cancels what is not done at the end of its grace time, and nothing else does.
        await exchange.give_up()
    except Exception:
        logger.exception("request %s failed", exchange.request_id.decode())
        await exchange.fail(InternalError(FAULT))


def _path(scope: Scope) -> str:
    """Return the path as the client wrote it, fit for one line of a log."""
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    path = raw[:MAX_PATH].decode("latin-1")
    return path if path.isprintable() else path.encode("unicode_escape").decode("ascii")


def _client(scope: Scope) -> str:
    host, port = scope.get("client") or ("-", 0)
    return f"{host}:{port}"
