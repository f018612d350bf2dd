"""Answers count to the budget of bytes until their clients have taken them."""

import asyncio

import pytest

from app.errors import Overloaded
from app.http.limits import charge, limits
from app.settings import Settings

SCOPE = {"type": "http", "path": "/", "headers": [(b"content-length", b"2"), (b"content-type", b"application/json")]}


async def nothing(*_: object) -> dict[str, object]:
    return {"type": "http.request", "body": b"{}"}


def test_an_answer_that_nobody_takes_holds_its_place_until_its_request_ends():
    async def test() -> None:
        taken = asyncio.Event()

        async def app(scope, receive, send):
            charge(scope, 700_000)
            await taken.wait()

        limited = limits(app, Settings(max_inflight_mb=1))
        silent = asyncio.create_task(limited(dict(SCOPE), nothing, nothing))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="try again"):
            await limited(dict(SCOPE), nothing, nothing)
        taken.set()
        await silent
        await limited(dict(SCOPE), nothing, nothing)

    asyncio.run(test())
