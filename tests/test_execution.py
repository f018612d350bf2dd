"""The lane: what is refused, what is dropped, and what is let go of."""

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Awaitable, Callable

import pytest

from app.errors import DeadlinePassed, Overloaded
from app.execution import Checkpoint, Lane


class Tensors:
    """What work holds on to."""


class Gate:
    """Work that lasts until it is told to end."""

    def __init__(self) -> None:
        self.entered, self.opened = threading.Event(), threading.Event()

    def __call__(self, checkpoint: Checkpoint) -> str:
        self.entered.set()
        assert self.opened.wait(30)
        return "done"


def in_a_lane(test: Callable[[Lane], Awaitable[None]], waiting: int = 2) -> None:
    async def run() -> None:
        lane = Lane(waiting)
        lane.start()
        try:
            await test(lane)
        finally:
            lane.stop()

    asyncio.run(run())


def later(seconds: float) -> float:
    return time.monotonic() + seconds


def test_work_is_answered_and_its_errors_are_raised():
    def fails(checkpoint: Checkpoint) -> None:
        raise ValueError("no such luck")

    async def test(lane: Lane) -> None:
        assert await lane.run(lambda checkpoint: 42, slot="short", deadline=later(10)) == 42
        with pytest.raises(ValueError, match="no such luck"):
            await lane.run(fails, slot="long", deadline=later(10))

    in_a_lane(test)


def test_waiting_work_is_dropped_at_its_deadline_and_leaves_its_place():
    async def test(lane: Lane) -> None:
        gate, ran = Gate(), []
        busy = asyncio.create_task(lane.run(gate, slot="long", deadline=later(30)))
        await asyncio.to_thread(gate.entered.wait, 10)
        for _ in range(5):  # more than may wait at once
            tensors = Tensors()
            alive = weakref.ref(tensors)

            def work(checkpoint: Checkpoint, tensors: Tensors = tensors) -> None:
                ran.append(tensors)

            with pytest.raises(DeadlinePassed):
                await lane.run(work, slot="long", deadline=later(0.02))
            del work, tensors
            gc.collect()  # an exception and the frames that it passed may hold each other
            assert alive() is None
        assert await lane.run(lambda checkpoint: "short", slot="short", deadline=later(10)) == "short"
        gate.opened.set()
        assert await busy == "done"
        assert await lane.run(lambda checkpoint: "next", slot="long", deadline=later(10)) == "next"
        assert ran == []

    in_a_lane(test)


def test_a_full_queue_is_refused_and_has_room_again():
    async def test(lane: Lane) -> None:
        gate = Gate()
        tasks = [asyncio.create_task(lane.run(gate, slot="long", deadline=later(30)))]
        await asyncio.to_thread(gate.entered.wait, 10)
        tasks += [asyncio.create_task(lane.run(gate, slot="long", deadline=later(30))) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="2 requests are waiting") as refused:
            await lane.run(gate, slot="short", deadline=later(30))
        assert refused.value.headers == {"Retry-After": "1"}
        gate.opened.set()
        assert await asyncio.gather(*tasks) == ["done"] * 3
        assert await lane.run(gate, slot="short", deadline=later(30)) == "done"

    in_a_lane(test)


def test_long_work_learns_at_its_checkpoint_that_nobody_waits():
    ended = threading.Event()

    def chunks(checkpoint: Checkpoint) -> None:
        try:
            while True:
                checkpoint()
                time.sleep(0.001)
        finally:
            ended.set()

    async def test(lane: Lane) -> None:
        with pytest.raises(DeadlinePassed):
            await lane.run(chunks, slot="long", deadline=later(0.05))
        assert await asyncio.to_thread(ended.wait, 10)

    in_a_lane(test)


def test_an_overrun_is_seen():
    async def test(lane: Lane) -> None:
        gate = Gate()
        with pytest.raises(DeadlinePassed):
            await lane.run(gate, slot="short", deadline=later(0.05))
        while lane.overrun_s() < 0.02:
            await asyncio.sleep(0.01)
        gate.opened.set()
        assert await lane.run(lambda checkpoint: 1, slot="short", deadline=later(10)) == 1
        assert lane.overrun_s() == 0

    in_a_lane(test)
