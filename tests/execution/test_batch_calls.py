"""Batches of elementwise calls: which calls share one, on which thread it runs, and whom a failure concerns."""

import asyncio
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from app.autodiff import derivatives, padded_numbers
from app.autodiff.padded_numbers import PaddedNumbers
from app.execution import batching
from app.execution.batching import Batches
from app.execution.scheduler import Scheduler
from app.runtime import traces
from app.runtime.traces import forbid_tracing
from app.telemetry.accounts import Owner
from app.telemetry.counters import Counters
from ops import Op
from tests.autodiff.elementwise_calls import PICKY, REGISTRY, call, own_traces, point, together
from tests.patience import PATIENCE_S


@pytest.fixture(scope="module", autouse=True)
def _own_traces() -> Iterator[None]:
    with own_traces():
        yield


def test_a_bad_value_fails_only_its_own_call() -> None:
    calls = [derivatives.forward(point(PICKY, np.full(2, value), "float32", "graph")) for value in (1.0, 200.0, 3.0)]
    first, bad, last = together(calls)
    assert first["y"].tolist() == [1, 1]
    assert last["y"].tolist() == [9, 9]
    assert "x is too large" in str(bad)


def test_simultaneous_calls_are_one_tensorflow_call(monkeypatch) -> None:
    sizes: list[int] = []
    run = PaddedNumbers.run

    def counted(packing, members):
        sizes.append(len(members))
        return run(packing, members)

    monkeypatch.setattr(PaddedNumbers, "run", counted)
    op = REGISTRY["square"]
    for _ in range(2):  # the second time on the event loop, if that is as fast
        sizes.clear()
        found = together([call(op, "vjp", np.full(3, float(i)), "float64", "graph") for i in range(20)])
        assert set(sizes) == {20}  # twice if a trace is missing
        for i, (values, _gradients) in enumerate(found):
            assert values["y"].tolist() == [float(i * i)] * 3


def test_a_batch_is_limited_in_size() -> None:
    size = padded_numbers.SHARED // 2
    found = together(
        [call(REGISTRY["square"], "forward", np.full(size, float(i)), "float64", "graph") for i in range(5)]
    )
    assert [one["y"][0] for one in found] == [0, 1, 4, 9, 16]


def test_only_the_calls_over_the_queue_limit_are_refused() -> None:
    ops = [REGISTRY["square"]] * 5 + [REGISTRY["round_ste"]]
    found = together([call(op, "forward", np.ones(2), "float64", "graph") for op in ops], waiting=4)
    assert ["queue full" in str(one) for one in found] == [False, False, True, True, True, False]


@pytest.mark.parametrize("seconds", [0.4, 1.5])
def test_an_expired_call_does_not_fail_its_batch(seconds: float) -> None:
    """The scheduler is busy past one call's deadline, or its whole batch's; others are answered."""

    async def run() -> list:
        scheduler = Scheduler(64)
        scheduler.start()
        batches = Batches(scheduler, 64)
        now = time.monotonic()
        busy = asyncio.create_task(
            scheduler.run(lambda checkpoint: time.sleep(seconds), queue="short", deadline=now + 60, owner=Owner("a"))
        )
        await asyncio.sleep(0.05)
        calls = [call(REGISTRY["round_ste"], "forward", np.ones(2), "float32", "graph") for _ in range(3)]
        try:
            deadlines = (now + 0.1, now + 60, now + 60)
            pending = [
                batches.run(one, queue="short", owner=Owner(one.point.op.name), deadline=at)
                for one, at in zip(calls, deadlines, strict=True)
            ]
            return await asyncio.gather(*pending, busy, return_exceptions=True)
        finally:
            scheduler.stop()

    impatient, *others, _ = asyncio.run(run())
    assert "deadline" in str(impatient)
    assert [one[0, "y"].tolist() for one in others] == [[1, 1], [1, 1]]


@pytest.mark.parametrize(("op", "on_the_loop"), [(REGISTRY["square"], True), (PICKY, False)])
def test_only_brief_arithmetic_runs_on_the_event_loop(monkeypatch, op: Op, on_the_loop: bool) -> None:
    threads: list[str] = []
    run = PaddedNumbers.run

    def seen(*args):
        threads.append(threading.current_thread().name)
        return run(*args)

    monkeypatch.setattr(PaddedNumbers, "run", seen)
    monkeypatch.setattr(batching, "INLINE_S", 60.0)

    async def ask() -> None:
        scheduler = Scheduler(64)
        scheduler.start()
        shared = Batches(scheduler, 64)
        for _ in range(2):
            pending = derivatives.forward(point(op, np.ones(2), "float32", "graph"))
            await shared.run(pending, queue="short", owner=Owner("a"), deadline=time.monotonic() + PATIENCE_S)
        scheduler.stop()

    asyncio.run(ask())
    threads = [name for name in threads if name != "scheduler-compile"]  # there it is traced
    assert threads == ["scheduler-short", threading.current_thread().name if on_the_loop else "scheduler-short"]


def test_an_evaluation_on_the_loop_whose_trace_is_gone_is_counted_once(monkeypatch) -> None:
    monkeypatch.setattr(batching, "INLINE_S", 60.0)
    op, counters = REGISTRY["square"], Counters()

    async def ask() -> None:
        scheduler = Scheduler(64)
        scheduler.start()
        forbid_tracing(("graph", "v1", "xla"))
        try:
            batches = Batches(scheduler, 64)
            for executions in (1, 2, 3):  # the second one runs on the loop
                if executions == 3:
                    traces.TRACES = traces.Traces()
                pending = derivatives.forward(point(op, np.ones(2), "float64", "graph"))
                until = time.monotonic() + PATIENCE_S
                await batches.run(
                    pending, queue="short", owner=Owner("a"), deadline=until, counters=counters, is_alone=True
                )
                assert counters.executions == counters.sizes.sum == executions
        finally:
            forbid_tracing(())
            scheduler.stop()

    asyncio.run(ask())


def test_an_evaluation_whose_caller_leaves_gives_back_its_place() -> None:
    async def run() -> tuple[int, int]:
        scheduler = Scheduler(64)
        scheduler.start()
        batches, until = Batches(scheduler, 64), time.monotonic() + PATIENCE_S
        calls = [call(PICKY, "forward", np.ones(2), "float32", "graph") for _ in range(4)]
        ended = threading.Event()
        busy = scheduler.run(lambda checkpoint: ended.wait(PATIENCE_S), queue="short", deadline=until, owner=Owner("a"))
        try:
            tasks = [asyncio.create_task(busy)]
            for one in calls:  # the first is in a turn, and the others wait
                tasks.append(asyncio.create_task(batches.run(one, queue="short", owner=Owner("a"), deadline=until)))
                await asyncio.sleep(0.05)
            before = batches.waiting
            for task in tasks[1:]:
                task.cancel()
            await asyncio.sleep(0.05)
            return before, batches.waiting
        finally:
            ended.set()
            await asyncio.gather(*tasks, return_exceptions=True)
            scheduler.stop()

    assert asyncio.run(run()) == (4, 0)
