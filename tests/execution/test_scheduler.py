"""The scheduler: refused work, dropped work, and the release of its memory."""

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Iterator

import pytest

from app.errors import DeadlinePassed, Overloaded
from app.execution.scheduler import Scheduler
from app.execution.tickets import RoundRobin
from app.runtime.cancellation import Checkpoint, uninterrupted
from app.runtime.traces import NotTraced, require_tracing_allowed
from app.telemetry.accounts import Owner
from app.telemetry.counters import Counters
from tests.patience import PATIENCE_S, PAUSE_S


class Tensors:
    """The memory that work holds."""


class Gate:
    """Work that runs until the gate opens."""

    def __init__(self) -> None:
        self.entered, self.opened = threading.Event(), threading.Event()

    def __call__(self, checkpoint: Checkpoint) -> str:
        self.entered.set()
        assert self.opened.wait(PATIENCE_S)
        return "done"


def in_a_scheduler(test: Callable[[Scheduler], Awaitable[None]], waiting: int = 2) -> None:
    async def run() -> None:
        scheduler = Scheduler(waiting)
        scheduler.start()
        try:
            await test(scheduler)
        finally:
            scheduler.stop()

    asyncio.run(run())


def later(seconds: float) -> float:
    return time.monotonic() + seconds


def test_work_returns_its_result_or_raises_its_error():
    def fails(checkpoint: Checkpoint) -> None:
        raise ValueError("no such luck")

    async def test(scheduler: Scheduler) -> None:
        assert (
            await scheduler.run(lambda checkpoint: 42, queue="short", deadline=later(PATIENCE_S), owner=Owner("a"))
            == 42
        )
        with pytest.raises(ValueError, match="no such luck"):
            await scheduler.run(fails, queue="long", deadline=later(PATIENCE_S), owner=Owner("a"))

    in_a_scheduler(test)


@pytest.fixture
def little_garbage() -> Iterator[None]:
    """Limit collections to the objects of the test: TensorFlow alone has half a million."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("little_garbage")
def test_queued_work_is_dropped_at_its_deadline_and_leaves_its_place():
    async def test(scheduler: Scheduler) -> None:
        gate, ran = Gate(), []
        busy = asyncio.create_task(scheduler.run(gate, queue="long", deadline=later(PATIENCE_S), owner=Owner("a")))
        await asyncio.to_thread(gate.entered.wait, PATIENCE_S)
        for _ in range(5):  # more than the queue holds
            tensors = Tensors()
            alive = weakref.ref(tensors)

            def work(checkpoint: Checkpoint, tensors: Tensors = tensors) -> None:
                ran.append(tensors)

            with pytest.raises(DeadlinePassed):
                await scheduler.run(work, queue="long", deadline=later(0.02), owner=Owner("a"))
            del work, tensors
            gc.collect()  # an exception and the frames that it passed may hold each other
            assert alive() is None
        assert (
            await scheduler.run(lambda _: "short", queue="short", deadline=later(PATIENCE_S), owner=Owner("a"))
            == "short"
        )
        gate.opened.set()
        assert await busy == "done"
        assert (
            await scheduler.run(lambda _: "next", queue="long", deadline=later(PATIENCE_S), owner=Owner("a")) == "next"
        )
        assert ran == []

    in_a_scheduler(test)


def test_a_full_queue_refuses_work_until_it_has_room():
    async def test(scheduler: Scheduler) -> None:
        gate = Gate()
        tasks = [asyncio.create_task(scheduler.run(gate, queue="long", deadline=later(PATIENCE_S), owner=Owner("a")))]
        await asyncio.to_thread(gate.entered.wait, PATIENCE_S)
        tasks += [
            asyncio.create_task(scheduler.run(gate, queue="long", deadline=later(PATIENCE_S), owner=Owner(name)))
            for name in "ab"
        ]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="1 waiting for b, 1 for others") as refused:
            await scheduler.run(gate, queue="long", deadline=later(PATIENCE_S), owner=Owner("b"))
        # The other queue is idle.
        assert (
            await scheduler.run(lambda checkpoint: 1, queue="short", deadline=later(PATIENCE_S), owner=Owner("b")) == 1
        )
        assert refused.value.headers == {"Retry-After": "1"}
        gate.opened.set()
        assert await asyncio.gather(*tasks) == ["done"] * 3
        assert await scheduler.run(gate, queue="short", deadline=later(PATIENCE_S), owner=Owner("a")) == "done"

    in_a_scheduler(test)


def in_order(*queued: str) -> list[str]:
    """Queue work of these owners behind a long task; return the owners in the order of execution."""
    ran: list[str] = []

    async def test(scheduler: Scheduler) -> None:
        def piece(name: str, owner: str) -> Awaitable[None]:
            return scheduler.run(
                lambda _: ran.append(name), queue="short", deadline=later(PATIENCE_S), owner=Owner(owner)
            )

        gate = Gate()
        busy = asyncio.create_task(scheduler.run(gate, queue="short", deadline=later(PATIENCE_S), owner=Owner("a")))
        await asyncio.to_thread(gate.entered.wait, PATIENCE_S)
        pieces = [piece(f"{owner}{i}", owner) for i, owner in enumerate(queued)]
        waiting = asyncio.gather(*pieces)
        await asyncio.sleep(0)
        gate.opened.set()
        await asyncio.gather(busy, waiting)

    in_a_scheduler(test, waiting=128)
    return ran


def test_a_flood_of_one_op_does_not_starve_others():
    ran = in_order(*["a"] * 50, "b")
    assert ran[:3] == ["a0", "b50", "a1"]
    assert ran[2:] == [f"a{i}" for i in range(1, 50)]


def test_ops_are_served_round_robin_and_each_in_order():
    assert in_order(*"aaabbcc") == ["a0", "b3", "c5", "a1", "b4", "c6", "a2"]


def test_leaving_the_queue_keeps_the_order_of_the_rest():
    turns = RoundRobin[str]()
    for item in ("a0", "a1", "b0", "c0"):
        turns.put(Owner(item[0]), item)
    assert turns.remove(Owner("b"), "b0")
    assert not turns.remove(Owner("b"), "b0")
    assert not turns.remove(Owner("a"), "a9")
    assert [turns.take(Owner(op)) for op in "aca"] == ["a0", "c0", "a1"]
    assert not turns


def test_work_that_starts_again_is_counted_once_and_waits_twice_but_not_longer():
    counters, runs = Counters(), list[str]()

    def work(checkpoint: Checkpoint) -> None:
        runs.append(threading.current_thread().name)
        if len(runs) == 1:
            time.sleep(0.02)
            raise NotTraced

    async def test(scheduler: Scheduler) -> None:
        began = time.perf_counter()
        await scheduler.run(work, queue="short", deadline=later(PATIENCE_S), owner=Owner("a"), counters=counters)
        assert runs == ["scheduler-short", "scheduler-compile"]
        assert 0.02 <= sum(counters.seconds.values()) <= time.perf_counter() - began
        assert counters.seconds["queue"] > 0
        assert counters.executions == 1

    in_a_scheduler(test)


def test_failed_work_is_counted():
    counters = Counters()

    def fails(checkpoint: Checkpoint) -> None:
        raise ValueError("no such luck")

    async def test(scheduler: Scheduler) -> None:
        with pytest.raises(ValueError, match="no such luck"):
            await scheduler.run(fails, queue="short", deadline=later(PATIENCE_S), owner=Owner("a"), counters=counters)
        assert counters.seconds["queue"] > 0
        assert counters.seconds["compute"] > 0
        assert counters.executions == 1

    in_a_scheduler(test)


def test_abandoned_work_stops_at_its_checkpoint():
    ended = threading.Event()

    def chunks(checkpoint: Checkpoint) -> None:
        try:
            while True:
                checkpoint()
                time.sleep(0.001)
        finally:
            ended.set()

    async def test(scheduler: Scheduler) -> None:
        with pytest.raises(DeadlinePassed):
            await scheduler.run(chunks, queue="long", deadline=later(0.05), owner=Owner("a"))
        assert await asyncio.to_thread(ended.wait, PATIENCE_S)

    in_a_scheduler(test)


def test_an_overrun_is_reported():
    async def test(scheduler: Scheduler) -> None:
        gate = Gate()
        assert scheduler.overruns() == []
        with pytest.raises(DeadlinePassed):
            await scheduler.run(gate, queue="short", deadline=later(0.05), owner=Owner("slow"))
        other = asyncio.create_task(scheduler.run(gate, queue="long", deadline=later(PATIENCE_S), owner=Owner("other")))
        while not (late := scheduler.overruns()) or late[0].seconds < 0.02:
            await asyncio.sleep(0.01)
        assert [each.owner.op for each in late] == ["slow"]
        gate.opened.set()
        assert await other == "done"
        assert (
            await scheduler.run(lambda checkpoint: 1, queue="short", deadline=later(PATIENCE_S), owner=Owner("a")) == 1
        )
        assert scheduler.overruns() == []

    in_a_scheduler(test)


def test_what_waits_for_stuck_work_is_refused():
    """So often as it comes, and its places are free again; what a thread may start goes on."""

    async def test(scheduler: Scheduler) -> None:
        gate = Gate()
        stuck = scheduler.submit(gate, queue="short", deadline=later(0.1), owner=Owner("slow"))
        assert await asyncio.to_thread(gate.entered.wait, PATIENCE_S)
        while scheduler.overruns() == [] or scheduler.overruns()[0].seconds < 0.1:
            await asyncio.sleep(PAUSE_S)
        for _ in range(2):
            waiting = [
                asyncio.create_task(scheduler.run(gate, queue="short", deadline=later(PATIENCE_S), owner=Owner(owner)))
                for owner in ("slow", "other")
            ]
            while scheduler.waiting < len(waiting):
                await asyncio.sleep(PAUSE_S)
            scheduler.refuse_behind(PATIENCE_S)
            assert scheduler.waiting == len(waiting)
            scheduler.refuse_behind(0.1)
            for task in waiting:
                with pytest.raises(Overloaded, match=r"^stuck: op slow is \d+ s past its deadline$") as error:
                    await task
                assert error.value.headers["Retry-After"] == "5"
            assert scheduler.waiting == 0
        assert (
            await scheduler.run(lambda checkpoint: 1, queue="long", deadline=later(PATIENCE_S), owner=Owner("other"))
            == 1
        )
        gate.opened.set()
        assert await asyncio.wrap_future(stuck.future) == "done"
        late = asyncio.create_task(scheduler.run(gate, queue="short", deadline=later(PATIENCE_S), owner=Owner("other")))
        scheduler.refuse_behind(0.1)
        assert await late == "done"

    in_a_scheduler(test)


def test_work_started_at_once_takes_no_place():
    async def test(scheduler: Scheduler) -> None:
        both = [
            scheduler.run(lambda checkpoint: 1, queue=queue, deadline=later(PATIENCE_S), owner=Owner(queue))
            for queue in ("long", "short")
        ]
        assert await asyncio.gather(*both) == [1, 1]

    for _ in range(20):
        in_a_scheduler(test, waiting=1)


def test_work_that_needs_a_compiler_leaves_its_queue():
    """It starts again in the queue for compiling; meanwhile its own queue serves others."""

    async def test(scheduler: Scheduler) -> None:
        gate, threads = Gate(), list[str]()

        def compiles(checkpoint: Checkpoint) -> str:
            threads.append(threading.current_thread().name)
            require_tracing_allowed("xla")
            return gate(checkpoint)

        for queue in ("short", "long"):
            gate.entered.clear()
            gate.opened.clear()
            slow = asyncio.create_task(
                scheduler.run(compiles, queue=queue, deadline=later(PATIENCE_S), owner=Owner("a"))
            )
            await asyncio.to_thread(gate.entered.wait, PATIENCE_S)
            assert (
                await scheduler.run(lambda checkpoint: 1, queue=queue, deadline=later(PATIENCE_S), owner=Owner("a"))
                == 1
            )
            gate.opened.set()
            assert await slow == "done"
        assert threads == ["scheduler-short", "scheduler-compile", "scheduler-long", "scheduler-compile"]

    in_a_scheduler(test)


def test_slow_traces_of_some_owners_hold_no_other():
    """An owner has one that a caller waits for, and one more; what is slow does not count."""

    async def test(scheduler: Scheduler) -> None:
        gates = [Gate() for _ in range(5)]

        def trace(gate: Gate, owner: str, seconds: float) -> asyncio.Task[str]:
            run = scheduler.run(gate, queue="compile", deadline=later(seconds), owner=Owner(owner))
            return asyncio.create_task(run)

        tasks = [trace(gates[0], "a", PATIENCE_S), trace(gates[1], "a", PATIENCE_S), trace(gates[2], "b", PATIENCE_S)]
        for gate in (gates[0], gates[2]):
            assert await asyncio.to_thread(gate.entered.wait, PATIENCE_S)
        # Two run at once; when they have turned out to be slow, a third one begins.
        tasks.append(trace(gates[3], "c", PATIENCE_S))
        assert await asyncio.to_thread(gates[3].entered.wait, PATIENCE_S)
        assert not gates[1].entered.is_set()
        abandoned = trace(gates[4], "d", 0.2)
        with pytest.raises(DeadlinePassed):
            await abandoned
        for gate in gates:
            gate.opened.set()
        assert await asyncio.gather(*tasks) == ["done"] * 4
        assert [late.owner.op for late in scheduler.overruns()] in ([], ["d"])

    in_a_scheduler(test, waiting=16)


@pytest.mark.slow
def test_traces_that_do_not_end_hold_no_other_and_have_a_bound():
    async def test(scheduler: Scheduler) -> None:
        gate = Gate()

        def hangs(checkpoint: Checkpoint) -> str:
            with uninterrupted():
                return gate(checkpoint)

        def trace(owner: Owner, seconds: float, work: Callable[[Checkpoint], str] = hangs) -> Awaitable[str]:
            return scheduler.run(work, queue="compile", deadline=later(seconds), owner=owner)

        owners = [Owner("a", "x"), Owner("a", "y"), *map(Owner, "bcdefgh")]
        ended = await asyncio.gather(*(trace(owner, 6) for owner in owners), return_exceptions=True)
        assert {type(each) for each in ended} == {DeadlinePassed}
        # One of nine had no thread.
        until = later(PATIENCE_S)
        while len(scheduler.late_traces()) < len(owners) - 1:
            assert time.monotonic() < until
            await asyncio.sleep(PAUSE_S)
        assert await trace(Owner("i"), PATIENCE_S, lambda checkpoint: "served") == "served"
        with pytest.raises(Overloaded, match="2 traces of op a have not ended") as refused:
            await trace(Owner("a", "z"), PATIENCE_S)
        assert refused.value.headers == {"Retry-After": "5"}
        assert scheduler.overruns() == []
        gate.opened.set()
        while scheduler.late_traces():
            assert time.monotonic() < until
            await asyncio.sleep(PAUSE_S)
        assert await trace(Owner("a", "z"), PATIENCE_S) == "done"

    in_a_scheduler(test, waiting=64)


def test_work_behind_a_late_trace_is_late_from_the_end_of_the_trace():
    async def test(scheduler: Scheduler) -> None:
        gate, ended = Gate(), list[float]()

        def work(checkpoint: Checkpoint) -> str:
            with uninterrupted():
                time.sleep(0.3)
            ended.append(time.monotonic())
            return gate(checkpoint)

        with pytest.raises(DeadlinePassed):
            await scheduler.run(work, queue="compile", deadline=later(0.05), owner=Owner("a"))
        assert await asyncio.to_thread(gate.entered.wait, PATIENCE_S)
        while not (late := scheduler.overruns()):
            await asyncio.sleep(PAUSE_S)
        assert late[0].seconds <= time.monotonic() - ended[0] + 0.1
        gate.opened.set()

    in_a_scheduler(test)


def test_abandoned_work_of_an_owner_lets_one_more_begin():
    async def test(scheduler: Scheduler) -> None:
        gates = [Gate() for _ in range(3)]

        def trace(gate: Gate, seconds: float) -> asyncio.Task[str]:
            run = scheduler.run(gate, queue="compile", deadline=later(seconds), owner=Owner("a"))
            return asyncio.create_task(run)

        with pytest.raises(DeadlinePassed):
            await trace(gates[0], 0.1)
        second = trace(gates[1], PATIENCE_S)
        assert await asyncio.to_thread(gates[1].entered.wait, PATIENCE_S)
        second.cancel()
        third = trace(gates[2], PATIENCE_S)
        assert not await asyncio.to_thread(gates[2].entered.wait, 0.6)
        gates[0].opened.set()
        assert await asyncio.to_thread(gates[2].entered.wait, PATIENCE_S)
        gates[2].opened.set()
        assert await third == "done"
        gates[1].opened.set()

    in_a_scheduler(test, waiting=16)
