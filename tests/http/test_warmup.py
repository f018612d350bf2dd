"""The warm-up compiles what the first requests need and does not delay other work."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

import httpx
import pytest

from app.autodiff import derivatives
from app.autodiff.binding import bind
from app.autodiff.padded_numbers import PaddedNumbers
from app.execution import batching, warmup
from app.execution.assembly import build
from app.execution.batching import Batches
from app.execution.engine import Engine
from app.execution.scheduler import Scheduler
from app.runtime import traces
from app.runtime.cancellation import Checkpoint
from app.settings import Settings
from app.telemetry.accounts import Owner
from app.tensors.json import decode
from ops import Registry, discover
from tests.http.native_client import ask
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

REGISTRY = discover()
CPU = "/device:CPU:0"
Task = asyncio.Task[None]
OPS = {name: REGISTRY.ops[name] for name in ("log1pexp", "roi_pool", "sign", "square")}


@pytest.fixture(name="counts")
def no_traces(monkeypatch) -> Callable[[], tuple[int, int]]:
    """The counts of a process without traces."""
    monkeypatch.setattr(traces, "TRACES", traces.Traces())
    return traces.trace_counts


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


def test_faulty_ops_do_not_end_the_warm_up(start, plugin_folders):
    start(OPS_PATH=plugin_folders, WARM_UP="1").wait_until_ready().wait_until_warm()


def during_warm_up(test: Callable[[Engine, Task], Awaitable[object]], waiting: int = 64) -> None:
    """Run a test during a warm-up."""

    async def run() -> None:
        scheduler = Scheduler(waiting)
        shared = Batches(scheduler, waiting)
        engine, _ = build(Settings(check_processes=0, jobs=0, metrics=False), lambda settings: Registry(OPS))
        engine = replace(engine, scheduler=scheduler, batches=shared)
        scheduler.start()
        try:
            async with warmup.warm_up(engine) as task:
                await test(engine, task)
        finally:
            scheduler.stop()

    asyncio.run(run())


async def to_its_end(engine: Engine, task: Task) -> None:
    await task


def test_compilations_are_bounded(monkeypatch, counts):
    monkeypatch.setattr(warmup, "SHARE", 1 / traces.TRACES.room.most_permanent)
    during_warm_up(to_its_end)
    assert counts() == (1, 1)


def test_the_duration_is_bounded(monkeypatch, counts):
    monkeypatch.setattr(warmup, "SECONDS", 0.0)
    during_warm_up(to_its_end)
    assert counts() == (0, 0)


def test_the_warm_up_waits_for_an_idle_scheduler(counts):
    async def test(engine: Engine, task: Task) -> None:
        opened = threading.Event()

        def work(checkpoint: Checkpoint) -> None:
            assert opened.wait(PATIENCE_S)

        busy = asyncio.create_task(
            engine.scheduler.run(work, queue="short", deadline=time.monotonic() + PATIENCE_S, owner=Owner("a"))
        )
        await asyncio.sleep(10 * warmup.PAUSE_S)
        assert counts() == (0, 0)
        opened.set()
        await busy
        await task
        assert counts() == (4, 4)

    during_warm_up(test)


def test_a_stop_waits_only_for_the_running_step(monkeypatch, counts):
    began, ended = threading.Event(), []
    run = PaddedNumbers.run

    def slow(program, *args):
        began.set()
        time.sleep(0.5)
        found = run(program, *args)
        ended.append(program)
        return found

    async def test(engine: Engine, task: Task) -> None:
        assert await asyncio.to_thread(began.wait, PATIENCE_S)

    monkeypatch.setattr(PaddedNumbers, "run", slow)
    during_warm_up(test)
    first, second = ended
    assert first == second


def test_the_warm_up_takes_no_place_in_the_queue(monkeypatch, counts):
    """While it compiles, another call takes the only place."""
    began, opened = threading.Event(), threading.Event()
    run = PaddedNumbers.run

    def slow(*args):
        began.set()
        assert opened.wait(PATIENCE_S)
        return run(*args)

    async def test(engine: Engine, task: Task) -> None:
        assert await asyncio.to_thread(began.wait, PATIENCE_S)
        try:
            point = bind(OPS["sign"], {"x": [1, -2]}, {}, None, decode, mode="graph", device=CPU, max_elements=9)
            pending = engine.batches.run(
                derivatives.forward(point), queue="short", owner=Owner("a"), deadline=time.monotonic() + PATIENCE_S
            )
            running = asyncio.create_task(pending)
            await asyncio.sleep(0.1)
            opened.set()
            assert (await running)[0, "y"].tolist() == [1, -1]
        finally:
            opened.set()

    monkeypatch.setattr(PaddedNumbers, "run", slow)
    during_warm_up(test, waiting=1)


def test_the_warm_up_records_durations(monkeypatch, counts):
    """So the first request of a kind runs where the second would: on the event loop, if that is as fast."""
    monkeypatch.setattr(batching, "INLINE_S", 60.0)
    threads: list[str] = []
    run = PaddedNumbers.run

    def seen(*args):
        threads.append(threading.current_thread().name)
        return run(*args)

    async def test(engine: Engine, task: Task) -> None:
        await task
        point = bind(OPS["square"], {"x": [3, 4]}, {}, None, decode, mode="xla", device=CPU, max_elements=9)
        found = await engine.batches.run(
            derivatives.forward(point), queue="short", owner=Owner("a"), deadline=time.monotonic() + PATIENCE_S
        )
        assert found[0, "y"].tolist() == [9, 16]

    monkeypatch.setattr(PaddedNumbers, "run", seen)
    during_warm_up(test)
    assert threads == ["scheduler-compile"] * 8 + [threading.current_thread().name]
