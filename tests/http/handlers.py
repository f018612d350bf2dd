"""Handlers behind the front door, without the service: one handler for every path."""

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.types import Message, Receive, Scope, Send

from app.execution.lifecycle import Lifecycle
from app.http.access_log import AccessLog
from app.http.body import Budget
from app.http.front_door import FrontDoor
from app.http.origins import Origins
from app.http.problems import HANDLERS
from app.http.request import REQUEST, Request
from app.http.route import Answer, RawRoute, RestRoute, admit, always
from app.settings import MB, Settings
from app.telemetry.counters import NOT_RECORDED, not_recorded


def application(
    handler: Answer, settings: Settings, lifecycle: Lifecycle | None = None, pages: APIRouter | None = None
) -> FastAPI:
    """Return an application that answers every request with ``handler``, except those to ``pages``."""
    app = FastAPI(exception_handlers={**HANDLERS}, openapi_url=None)
    app.include_router(pages or APIRouter())
    app.router.routes += [
        RawRoute("/health/live", always(handler, not_recorded("", "health"))),
        RestRoute("/{rest:path}", always(handler, NOT_RECORDED)),
    ]
    app.add_middleware(FrontDoor, settings=settings, **_door(settings, lifecycle or Lifecycle()))
    return app


def _door(settings: Settings, lifecycle: Lifecycle, budget: Budget | None = None) -> dict[str, Any]:
    """Return what the front door needs, with any host allowed."""
    return {
        "log": AccessLog(settings),
        "lifecycle": lifecycle,
        "counters": NOT_RECORDED,
        "budget": budget or Budget(settings.max_inflight_mb * MB),
        "origins": Origins(Settings(hosts=("*",))),
    }


def limited(handler: Answer, budget: Budget) -> Callable[[Request], Awaitable[None]]:
    """Return ``handler`` behind the default limits."""

    async def inside(scope: Scope, receive: Receive, send: Send) -> None:
        admit(scope[REQUEST])
        await handler(scope[REQUEST])

    door = FrontDoor(inside, Settings(), **_door(Settings(), Lifecycle(), budget))

    async def handle(request: Request) -> None:
        request.scope[REQUEST] = request
        await door.admit(request)

    return handle


def request_of(*pieces: bytes, ends: bool = True, **headers: str) -> Request:
    """Return a request whose body arrives in these pieces; if it does not end, the client disconnects."""
    messages: list[Message] = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    messages += [{"type": "http.request"} if ends else {"type": "http.disconnect"}]

    async def receive() -> Message:
        return messages.pop(0)

    async def send(message: Message) -> None:
        pass

    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": named}
    return Request(scope, receive, send, b"1", lifecycle=Lifecycle())
