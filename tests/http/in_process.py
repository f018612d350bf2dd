"""Run the application in the test process and call it without a socket."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from starlette.types import ASGIApp

from app.main import create_app
from app.settings import Settings


@asynccontextmanager
async def running(**settings: Any) -> AsyncGenerator[ASGIApp]:
    """Run an application without warm-up, with these settings, for the duration of this block."""
    app, started, ended = create_app(Settings(port=0, warm_up=False, **settings)), asyncio.Event(), asyncio.Event()

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


async def post(app: ASGIApp, path: str, body: bytes, **scope: Any) -> bytes:
    """Return the body of the response to one request; ``scope`` overrides entries of its ASGI scope."""
    chunks, incoming = [], [{"type": "http.request", "body": body, "more_body": False}]

    async def receive():
        return incoming.pop() if incoming else await asyncio.Event().wait()

    async def send(message):
        chunks.append(message.get("body", b""))

    headers = [
        (b"host", b"localhost"),
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
    ]
    defaults = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "headers": headers}
    await app({**defaults, **scope}, receive, send)
    return b"".join(chunks)
