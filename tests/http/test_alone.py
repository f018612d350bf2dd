"""A request that is alone is computed at once; where others are under way it waits for those that come with it."""

import asyncio
from contextlib import asynccontextmanager

import orjson
import pytest

from app import warmup
from app.batches import Batches
from app.connection import UNDER_WAY, is_alone
from app.main import create_app
from app.settings import Settings

BODY = orjson.dumps({"inputs": {"x": [0.5, 1.5]}, "cotangents": {"y": [1.0, 2.0]}})
PATH = "/v1/ops/log1pexp/vjp"


@asynccontextmanager
async def running():
    """Run an application inside this block."""
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
        yield app
    finally:
        ended.set()
        await life


async def ask(app, under_way: set) -> bytes:
    """Return the answer to a request, while so many are under way."""
    sent, came = [], [{"type": "http.request", "body": BODY, "more_body": False}]

    async def receive():
        return came.pop() if came else await asyncio.Event().wait()

    async def send(message):
        sent.append(message.get("body", b""))

    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(BODY))]
    scope = {"type": "http", "method": "POST", "path": PATH, "raw_path": PATH.encode(), "headers": headers}
    await app({**scope, UNDER_WAY: under_way}, receive, send)
    return b"".join(sent)


@pytest.mark.parametrize(("under_way", "at_once"), [({1}, 3), ({1, 2}, 0)])
def test_who_is_alone_waits_for_nobody(under_way, at_once, monkeypatch):
    monkeypatch.setattr(warmup, "SECONDS", 0.0)
    calls = []
    run_at_once = Batches.run_at_once
    monkeypatch.setattr(Batches, "run_at_once", lambda *args: calls.append(args) or run_at_once(*args))

    async def test() -> list[bytes]:
        async with running() as app:
            first = await ask(app, under_way)  # which nobody knows yet to be brief
            second = await ask(app, under_way)
            assert first == second
            before = len(calls)
            answers = [await ask(app, under_way) for _ in range(3)]
            assert len(calls) - before == at_once
            return [first, *answers]

    answers = asyncio.run(test())
    assert len(set(answers)) == 1
    assert b"gradients" in answers[0]


@pytest.mark.parametrize(("scope", "expected"), [({}, False), ({UNDER_WAY: {1}}, True), ({UNDER_WAY: {1, 2}}, False)])
def test_only_a_server_that_counts_tells_who_is_alone(scope, expected):
    assert is_alone(scope) is expected
