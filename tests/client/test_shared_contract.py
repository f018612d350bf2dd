"""Calls without names need the contract: those that need it at the same time share one request."""

import asyncio
import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

import pullback
from pullback.coroutines import iterate, run
from tests.client.test_extensions import CONTRACT
from tests.patience import PATIENCE_S, PAUSE_S

CALLS = 30
ANSWER = {"outputs": {"y": {"dtype": "float64", "shape": [], "base64": "AAAAAAAACEA="}}}


class Held(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """A transport that holds each request for the contract until it is released, and counts them."""

    def __init__(self, *, contract: Callable[[], httpx.Response]) -> None:
        self.contracts = 0
        self.arrived, self.released = threading.Event(), threading.Event()
        self._contract = contract

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            return httpx.Response(200, json=ANSWER)
        self.contracts += 1
        self.arrived.set()
        assert self.released.wait(PATIENCE_S)
        return self._contract()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            return httpx.Response(200, json=ANSWER)
        self.contracts += 1
        self.arrived.set()
        while not self.released.is_set():
            await asyncio.sleep(0.001)
        return self._contract()


def known() -> httpx.Response:
    return httpx.Response(200, json=CONTRACT)


def unknown() -> httpx.Response:
    document = {"type": "urn:pullback:problem:not-found", "title": "Not found", "status": 404, "detail": "no op"}
    content = json.dumps(document).encode()
    return httpx.Response(404, content=content, headers={"content-type": "application/problem+json"})


def threads(transport: Held, op: pullback.Op) -> list[Any]:
    """Make calls in many threads, and release the contract when all wait for it; return results and errors."""
    callers: set[int] = set()

    def call() -> Any:
        callers.add(threading.get_ident())
        try:
            return op.forward(3.0).outputs["y"]
        except pullback.PullbackError as error:
            return error

    with ThreadPoolExecutor(CALLS) as pool:
        futures = [pool.submit(call) for _ in range(CALLS)]
        end = time.monotonic() + PATIENCE_S
        while not transport.released.is_set() and waiting(callers) < CALLS and time.monotonic() < end:
            time.sleep(PAUSE_S)
        transport.released.set()
        return [future.result(PATIENCE_S) for future in futures]


def waiting(threads: set[int]) -> int:
    """Return how many of the threads wait for another one."""
    frames = sys._current_frames()
    return sum(frames[thread].f_code.co_filename == threading.__file__ for thread in [*threads] if thread in frames)


def tasks(transport: Held, op: pullback.AsyncOp) -> list[Any]:
    async def main() -> list[Any]:
        calls = asyncio.gather(*(op.forward(3.0) for _ in range(CALLS)), return_exceptions=True)
        await asyncio.sleep(0.01)
        transport.released.set()
        return [x if isinstance(x, Exception) else x.outputs["y"] for x in await calls]

    return asyncio.run(main())


KINDS: dict[str, tuple[Callable[..., Any], Callable[..., list[Any]]]] = {
    "threads": (pullback.Client, threads),
    "tasks": (pullback.AsyncClient, tasks),
}


@pytest.mark.parametrize("kind", KINDS)
def test_calls_at_a_time_share_one_request(kind: str) -> None:
    make, call = KINDS[kind]
    transport = Held(contract=known)
    op = make("http://x", transport=transport).op("square")
    assert call(transport, op) == [3.0] * CALLS
    assert transport.contracts == 1
    assert call(transport, op) == [3.0] * CALLS
    assert transport.contracts == 1


@pytest.mark.parametrize("kind", KINDS)
def test_they_share_its_error_and_later_calls_ask_again(kind: str) -> None:
    make, call = KINDS[kind]
    transport = Held(contract=unknown)
    op = make("http://x", transport=transport).op("square")
    found = call(transport, op)
    assert all(isinstance(x, pullback.NotFound) for x in found), found
    assert transport.contracts == 1
    assert all(isinstance(x, pullback.NotFound) for x in call(transport, op))
    assert transport.contracts > 1


@pytest.mark.parametrize("ends", ["cancelled", "out of time"])
def test_a_call_that_ends_alone_does_not_end_the_others(ends: str) -> None:
    """The first call requests the contract; the second waits for it, and then requests it itself."""
    transport = Held(contract=known)

    async def main() -> None:
        client = pullback.AsyncClient("http://x", transport=transport)
        op = client.op("square")
        first = asyncio.create_task(op.forward(3.0, deadline=0.05 if ends == "out of time" else None))
        await asyncio.sleep(0)
        second = asyncio.create_task(op.forward(3.0))
        await asyncio.sleep(0.01)
        if ends == "cancelled":
            first.cancel()
        with contextlib.suppress(asyncio.CancelledError), pytest.raises(pullback.TimedOut):
            await first
        assert transport.contracts <= 2
        transport.released.set()
        assert (await asyncio.wait_for(second, PATIENCE_S)).outputs["y"] == 3.0
        await client.close()

    asyncio.run(main())
    assert transport.contracts == 2


def test_a_call_waits_no_longer_than_its_deadline() -> None:
    transport = Held(contract=known)

    async def main() -> None:
        async with pullback.AsyncClient("http://x", transport=transport) as client:
            op = client.op("square")
            first = asyncio.create_task(op.forward(3.0))
            await asyncio.sleep(0)
            with pytest.raises(pullback.TimedOut, match="deadline"):
                await asyncio.wait_for(op.forward(3.0, deadline=0.05), PATIENCE_S)
            transport.released.set()
            assert (await first).outputs["y"] == 3.0

    asyncio.run(main())


def test_a_thread_waits_no_longer_than_its_deadline() -> None:
    transport = Held(contract=known)
    with pullback.Client("http://x", transport=transport) as client, ThreadPoolExecutor(1) as pool:
        op = client.op("square")
        first = pool.submit(op.forward, 3.0)
        assert transport.arrived.wait(PATIENCE_S)
        with pytest.raises(pullback.TimedOut, match="deadline"):
            op.forward(3.0, deadline=0.05)
        transport.released.set()
        assert first.result(PATIENCE_S).outputs["y"] == 3.0


def test_a_coroutine_that_suspends_cannot_run_without_an_event_loop() -> None:
    async def suspends() -> None:
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="never suspends"):
        run(suspends())


def test_closing_the_iteration_closes_the_generator() -> None:
    ended: list[str] = []

    async def items() -> Any:
        try:
            yield 1
            yield 2
        finally:
            ended.append("closed")

    # Python closes a generator that nothing refers to.
    source = items()
    numbers = iterate(source)
    assert next(numbers) == 1
    numbers.close()
    assert ended == ["closed"]
    assert list(iterate(items())) == [1, 2]
    assert ended == ["closed", "closed"]
