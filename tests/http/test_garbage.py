"""A request leaves no circles behind: what it held goes with it, and not when the collector comes round."""

import asyncio
import gc

import orjson
import pytest

from app import warmup
from app.lifecycle import Lifecycle
from app.limits import clock_of, limits
from app.main import create_app
from app.observe import observe
from app.settings import Settings

REQUESTS = 20
BODY = orjson.dumps({"inputs": {"x": [0.5, 1.5]}, "cotangents": {"y": [1.0, 2.0]}})
PATHS = ("/v1/ops/log1pexp/vjp", "/v1/ops/log1pexp/jacobian", "/v1/ops/none/vjp", "/v1/ops/log1pexp/none")


async def asked(app, path: str) -> list[dict]:
    """Return the messages of the answer to one request."""
    sent, came = [], [{"type": "http.request", "body": BODY, "more_body": False}]

    async def receive():
        return came.pop() if came else await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(BODY))]
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "headers": headers}
    await app(scope, receive, send)
    return sent


async def garbage(app, path: str) -> int:
    """Return how many objects of some requests only the collector can free."""
    await asked(app, path)
    await asyncio.sleep(0)
    gc.collect()
    gc.disable()
    try:
        for _ in range(REQUESTS):
            await asked(app, path)
            await asyncio.sleep(0)
        return gc.collect()
    finally:
        gc.enable()


@pytest.mark.parametrize("path", PATHS)
def test_requests_leave_no_circles(path, monkeypatch):
    monkeypatch.setattr(warmup, "SECONDS", 0.0)

    async def test() -> int:
        app, started, ended = create_app(Settings()), asyncio.Event(), asyncio.Event()

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
            return await garbage(app, path)
        finally:
            ended.set()
            await life
            gc.unfreeze()

    assert asyncio.run(test()) < REQUESTS


def test_a_request_that_is_late_leaves_none():
    async def late(scope, receive, send):
        clock_of(scope).working(until=0.0)
        await asyncio.Event().wait()

    settings = Settings()
    app = observe(limits(late, settings), settings, Lifecycle())
    assert asyncio.run(garbage(app, "/late")) < REQUESTS
