"""The first requests find compiled what they ask for, and the warm-up is in nobody's way."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable

import httpx
import pytest

from app import batches, buckets, derivatives, modes, warmup
from app.batches import Batches
from app.binding import bind
from app.devices import devices
from app.engine import Engine
from app.execution import Checkpoint, Lane
from app.tally import uncounted
from app.tensors.json import decode
from ops import Registry, discover
from tests.http.asking import ask
from tests.patience import PATIENCE_S

REGISTRY = discover()
CPU = "/device:CPU:0"
Task = asyncio.Task[None]
OPS = {name: REGISTRY.ops[name] for name in ("log1pexp", "roi_pool", "sign", "square")}


@pytest.fixture
def traces(monkeypatch) -> Callable[[], tuple[int, int]]:
    """The counts of a process that has made none."""
    monkeypatch.setattr(modes, "_traces", modes._Traces())
    return modes.trace_counts


def test_first_small_requests_make_no_trace(start):
    one = start(WARM_UP="1").wait_until_ready().wait_until_warm()
    with one.client() as client:
        compiled = [op for op in client.get("/v1/ops").json()["ops"] if is_compiled(client, op["name"])]
        before = client.get("/health/ready").json()
        assert before["compiled"] == 2 * len(compiled) > 0
        for op in compiled:
            contract = client.get(f"/v1/ops/{op['name']}").json()
            named = contract["examples"][0]
            [output] = contract["outputs"]
            shape = next(iter(named["inputs"].values()))
            ask(client, op["name"], "forward", inputs=named["inputs"], attrs=named["attrs"])
            dys = {output["name"]: shape}
            ask(client, op["name"], "vjp", inputs=named["inputs"], attrs=named["attrs"], cotangents=dys)
        after = client.get("/health/ready").json()
    assert (after["traces"], after["compiled"]) == (before["traces"], before["compiled"])


def is_compiled(client: httpx.Client, op: str) -> bool:
    contract = client.get(f"/v1/ops/{op}").json()
    return contract["batching"] == "elementwise" and contract["default_mode"]["vjp"]["float32"] == "xla"


def test_ops_with_mistakes_do_not_end_it(start, plugin_folders):
    start(OPS_PATH=plugin_folders, WARM_UP="1").wait_until_ready().wait_until_warm()


def warming(test: Callable[[Engine, Task], Awaitable[object]], waiting: int = 64) -> None:
    """Run a test in the middle of a warm-up."""

    async def run() -> None:
        lane = Lane(waiting)
        shared = Batches(lane, waiting)
        engine = Engine(Registry(OPS), lane, shared, devices(), "cpu", 1 << 22, 60.0, 60.0, 1 << 24, uncounted)
        lane.start()
        try:
            async with warmup.warm_up(engine) as task:
                await test(engine, task)
        finally:
            lane.stop()

    asyncio.run(run())


async def to_its_end(engine: Engine, task: Task) -> None:
    await task


def test_what_is_compiled_is_bounded(monkeypatch, traces):
    monkeypatch.setattr(modes, "XLA_BUDGET", 8)
    warming(to_its_end)
    assert traces() == (1, 1)


def test_its_time_is_bounded(monkeypatch, traces):
    monkeypatch.setattr(warmup, "SECONDS", 0.0)
    warming(to_its_end)
    assert traces() == (0, 0)


def test_it_does_not_begin_while_the_lane_is_busy(traces):
    async def test(engine: Engine, task: Task) -> None:
        opened = threading.Event()

        def work(checkpoint: Checkpoint) -> None:
            assert opened.wait(PATIENCE_S)

        busy = asyncio.create_task(
            engine.lane.run(work, slot="short", deadline=time.monotonic() + PATIENCE_S, owner="a")
        )
        await asyncio.sleep(10 * warmup.PAUSE_S)
        assert traces() == (0, 0)
        opened.set()
        await busy
        await task
        assert traces() == (4, 4)

    warming(test)


def test_a_stop_waits_for_the_piece_that_runs_and_for_no_more(monkeypatch, traces):
    began, ended = threading.Event(), []
    run = buckets.run

    def slow(program, *args):
        began.set()
        time.sleep(0.5)
        found = run(program, *args)
        ended.append(program)
        return found

    async def test(engine: Engine, task: Task) -> None:
        assert await asyncio.to_thread(began.wait, PATIENCE_S)

    monkeypatch.setattr(buckets, "run", slow)
    warming(test)
    first, second = ended
    assert first == second


def test_it_takes_nobodys_place(monkeypatch, traces):
    """While it compiles, another call has the only place that there is."""
    began, opened = threading.Event(), threading.Event()
    run = buckets.run

    def slow(*args):
        began.set()
        assert opened.wait(PATIENCE_S)
        return run(*args)

    async def test(engine: Engine, task: Task) -> None:
        assert await asyncio.to_thread(began.wait, PATIENCE_S)
        try:
            point = bind(OPS["sign"], {"x": [1, -2]}, {}, None, decode, mode="graph", device=CPU, max_elements=9)
            asked = engine.batches.run(derivatives.forward(point), slot="short", deadline=time.monotonic() + PATIENCE_S)
            running = asyncio.create_task(asked)
            await asyncio.sleep(0.1)
            opened.set()
            assert (await running)["y"].tolist() == [1, -1]
        finally:
            opened.set()

    monkeypatch.setattr(buckets, "run", slow)
    warming(test, waiting=1)


def test_batches_know_how_long_the_calls_take(monkeypatch, traces):
    """So the first request of a kind is run where the second would be: on the event loop, where that is as fast."""
    monkeypatch.setattr(batches, "BRIEF_S", 60.0)
    threads: list[str] = []
    run = buckets.run

    def seen(*args):
        threads.append(threading.current_thread().name)
        return run(*args)

    async def test(engine: Engine, task: Task) -> None:
        await task
        point = bind(OPS["square"], {"x": [3, 4]}, {}, None, decode, mode="xla", device=CPU, max_elements=9)
        found = await engine.batches.run(
            derivatives.forward(point), slot="short", deadline=time.monotonic() + PATIENCE_S
        )
        assert found["y"].tolist() == [9, 16]

    monkeypatch.setattr(buckets, "run", seen)
    warming(test)
    assert threads == ["lane-long"] * 8 + [threading.current_thread().name]
