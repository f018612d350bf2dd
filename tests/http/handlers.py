"""Handlers behind the access log and the limits, without the service: one handler for every path."""

from collections.abc import Mapping

from starlette.types import ASGIApp, Receive, Scope, Send

from app.execution.lifecycle import Lifecycle
from app.http.access_log import AccessLog, observe
from app.http.body import Budget
from app.http.limits import limits
from app.http.request import Handler, Request, Route
from app.settings import MB, Settings
from app.telemetry.counters import not_recorded


class OneRoute:
    """A route table that maps every path to one handler."""

    def __init__(self, handler: Handler) -> None:
        self.by_path: Mapping[str, Route] = {"/health/live": Route(handler, counters=not_recorded("", "health"))}
        self._route = Route(handler)

    def other(self, path: str) -> Route:
        return self._route


async def no_lifespan(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError(f"expected requests only, got {scope['type']}")


def application(handler: Handler, settings: Settings, lifecycle: Lifecycle | None = None) -> ASGIApp:
    """Return an application that answers every request with ``handler``."""
    limited = limits(settings, Budget(settings.max_inflight_mb * MB))
    return observe(limited, OneRoute(handler), no_lifespan, AccessLog(settings), lifecycle or Lifecycle())


def request_of(*pieces: bytes, ends: bool = True, handler: Handler | None = None, **headers: str) -> Request:
    """Return a request whose body arrives in these pieces; if it does not end, the client disconnects."""
    messages = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    messages += [{"type": "http.request"} if ends else {"type": "http.disconnect"}]

    async def receive():
        return messages.pop(0)

    async def send(message):
        pass

    async def nothing(request: Request) -> None:
        pass

    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": named}
    return Request(scope, receive, send, Route(handler or nothing), b"1", lifecycle=Lifecycle())
