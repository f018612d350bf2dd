"""The application inside this process, asked without a socket."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from starlette.types import ASGIApp

from app.main import create_app
from app.settings import Settings


@asynccontextmanager
async def running() -> AsyncGenerator[ASGIApp]:
    """Run an application, which does not warm up, inside this block."""
    app, started, ended = create_app(Settings(warm_up=False)), asyncio.Event(), asyncio.Event()

    async def receive():
        if started.is_set():
            await ended.wait()
            return {"type": "lifespan.shutdown"}
        return {"type": "lifespan.startup"}

    async def send(message):
        started.set()

    life = asyncio.create_task(app({"type": "lifespan", "state": {}}, receive, send))
    await started.wait()
    try:
        yield app
    finally:
        ended.set()
        await life


async def asked(app: ASGIApp, path: str, body: bytes, **scope: Any) -> bytes:
    """Return the body of the answer to one request, of whose scope the caller may say more."""
    sent, came = [], [{"type": "http.request", "body": body, "more_body": False}]

    async def receive():
        return came.pop() if came else await asyncio.Event().wait()

    async def send(message):
        sent.append(message.get("body", b""))

    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    said = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "headers": headers}
    await app({**said, **scope}, receive, send)
    return b"".join(sent)
