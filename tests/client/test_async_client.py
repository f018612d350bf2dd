"""The asyncio client: many calls at a time, its queue, and event loops that come and go."""

import asyncio
import gc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest

import pullback
from tests.client.fake_servers import Response
from tests.client.raw_servers import OK
from tests.conftest import Service
from tests.patience import PATIENCE_S

CALLS = 2_000


@pytest.mark.slow
def test_any_number_of_calls_may_be_gathered(service: Service) -> None:
    async def run() -> None:
        async with pullback.AsyncClient(service.url, timeout=PATIENCE_S) as client:
            op = client.op("square")
            found = await asyncio.gather(*(op.vjp({"x": np.float64(i)}) for i in range(CALLS)))
            assert [answer.gradients["x"].item() for answer in found] == [2 * i for i in range(CALLS)]

    asyncio.run(run())


def test_only_so_many_calls_are_sent_at_a_time() -> None:
    running, most = 0, 0

    async def answer(request: httpx.Request) -> httpx.Response:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return httpx.Response(200, json={"ops": []})

    async def run() -> None:
        async with pullback.AsyncClient(concurrency=3, transport=httpx.MockTransport(answer)) as client:
            await asyncio.gather(*(client.ops() for _ in range(20)))

    asyncio.run(run())
    assert most == 3


def test_a_call_that_fails_or_is_cancelled_gives_its_turn_back() -> None:
    async def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/fail"):
            raise httpx.ReadError("gone")
        if request.url.path.endswith("/wait"):
            await asyncio.Event().wait()
        return httpx.Response(200, json={"ops": []})

    async def run() -> None:
        async with pullback.AsyncClient(concurrency=1, transport=httpx.MockTransport(answer)) as client:
            with pytest.raises(pullback.ConnectionLost):
                await client.op("fail").contract()
            waiting = asyncio.create_task(client.op("wait").contract())
            await asyncio.sleep(0)
            waiting.cancel()
            assert await asyncio.wait_for(client.ops(), PATIENCE_S) == []

    asyncio.run(run())


def test_an_error_names_the_queue_if_the_time_went_there(fake_server) -> None:
    server = fake_server(Response(is_held=True))

    async def run() -> None:
        async with pullback.AsyncClient(server.url, concurrency=1, timeout=PATIENCE_S) as client:
            first = asyncio.create_task(client.ops())
            await asyncio.sleep(0)
            with pytest.raises(pullback.TimedOut, match=r"in this client's own queue, .* 1 others .*concurrency"):
                await client.op("square").forward({"x": 1}, deadline=0.05)
            first.cancel()

    asyncio.run(run())


@pytest.mark.parametrize("count", [0, -1, "2", None, 1.5])
def test_counts_that_cannot_be_used(count: Any) -> None:
    with pytest.raises(pullback.BadArgument, match="concurrency: expected at least 1"):
        pullback.AsyncClient(concurrency=count)
    if count != 0:
        with pytest.raises(pullback.BadArgument, match="retries: expected at least 0"):
            pullback.Client(retries=count)


# Nothing can close the connections of an event loop that has ended.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_client_works_in_one_event_loop_after_another(service: Service) -> None:
    client = pullback.AsyncClient(service.url, timeout=PATIENCE_S)
    op = client.op("square")
    for _ in range(2):
        assert asyncio.run(value(op)) == 9
    del client, op
    gc.collect()


async def value(op: pullback.AsyncOp) -> float:
    return (await op.forward({"x": 3})).outputs["y"].item()


def test_a_closed_client_says_so(service: Service) -> None:
    async def run() -> None:
        client = pullback.AsyncClient(service.url, timeout=PATIENCE_S)
        assert await client.ops()
        await client.close()
        with pytest.raises(pullback.ClientClosed):
            await client.ops()
        with pytest.raises(pullback.ClientClosed):
            await anext(client.checks())

    asyncio.run(run())


def test_large_arrays_and_other_transports(service: Service) -> None:
    async def run() -> None:
        x = np.arange(500_000.0)
        transports = (None, httpx.AsyncHTTPTransport())
        for transport in transports:
            async with pullback.AsyncClient(service.url, timeout=PATIENCE_S, transport=transport) as client:
                np.testing.assert_array_equal((await client.op("square").vjp({"x": x})).gradients["x"], 2 * x)

    asyncio.run(run())


def test_a_call_that_is_cancelled_closes_its_connection(raw_server) -> None:
    server = raw_server()

    async def run() -> None:
        async with pullback.AsyncClient(server.url, timeout=PATIENCE_S) as client:
            waiting = asyncio.create_task(client.ops())
            while not server.heads:
                await asyncio.sleep(0.01)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await asyncio.to_thread(server.wait_for_connections)
            server.pieces = (OK,)
            assert await client.ops() == []

    asyncio.run(run())
    assert server.connections == 2


def test_bytes_that_nobody_asked_for_close_the_connection(raw_server) -> None:
    server = raw_server(OK)

    async def run() -> None:
        async with pullback.AsyncClient(server.url, timeout=PATIENCE_S) as client:
            assert await client.ops() == []
            server.send_to_all(OK)
            await asyncio.to_thread(server.wait_for_connections)
            assert await client.ops() == []

    asyncio.run(run())
    assert server.connections == 2


def test_a_closed_client_leaves_nothing_open(raw_server) -> None:
    server = raw_server(OK)
    runner = asyncio.Runner()
    client = pullback.AsyncClient(server.url, timeout=PATIENCE_S)
    assert runner.run(client.ops()) == []
    runner.run(client.close())
    server.wait_for_connections()
    runner.close()


def test_event_loops_of_two_threads_share_a_client(raw_server) -> None:
    """Each use in the other loop makes new connections, and closes those of the loop before."""
    server = raw_server(OK)
    client = pullback.AsyncClient(server.url, timeout=PATIENCE_S)
    with asyncio.Runner() as here, ThreadPoolExecutor(1) as pool:
        there = asyncio.new_event_loop()
        running = pool.submit(there.run_forever)
        for _ in range(3):
            assert here.run(client.ops()) == []
            assert asyncio.run_coroutine_threadsafe(client.ops(), there).result(PATIENCE_S) == []
        here.run(client.close())
        here.run(asyncio.sleep(0))
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), there).result(PATIENCE_S)
        server.wait_for_connections()
        there.call_soon_threadsafe(there.stop)
        running.result(PATIENCE_S)
        there.close()
    assert server.connections == 6
