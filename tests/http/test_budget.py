"""Responses count against the byte budget until their clients have read them."""

import asyncio

import pytest

from app.errors import Overloaded
from app.http.body import Budget
from app.http.request import Request
from app.settings import MB
from tests.http.handlers import limited, request_of


def test_an_unread_response_holds_its_bytes_until_the_request_ends():
    async def test() -> None:
        taken = asyncio.Event()

        async def handler(request: Request) -> None:
            request.hold(700_000)
            await taken.wait()

        def request() -> Request:
            return request_of(b"{}", content_length="2", content_type="application/json")

        handle = limited(handler, Budget(MB))
        silent = asyncio.create_task(handle(request()))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="try again"):
            await handle(request())
        taken.set()
        await silent
        await handle(request())

    asyncio.run(test())
