"""Lines: what a turn of the thread has no time for waits for the next, and who is refused knows it."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from app.autodiff import derivatives
from app.errors import Overloaded
from app.execution.lines import TURN_S, Batch, Lines
from app.execution.scheduler import Scheduler
from app.telemetry.accounts import Owner
from tests.autodiff.elementwise_calls import REGISTRY, point
from tests.patience import PATIENCE_S

# How long a test may last, even on a busy machine.
WAIT_S = 20.0


NUMBERS = Owner("numbers")


@dataclass(eq=False)
class Number:
    """A member whose result is its number."""

    number: int
    on_release: Callable[[], None] | None = None
    units: int = 1
    owner: Owner = NUMBERS
    may_wait: bool = True
    latest: float = field(default_factory=lambda: time.monotonic() + PATIENCE_S)
    future: asyncio.Future[int] = field(default_factory=asyncio.Future[int])

    @property
    def is_done(self) -> bool:
        return self.future.done()


class Slow(Batch[Number]):
    """A call that takes a whole turn."""

    def run(self) -> None:
        time.sleep(1.5 * TURN_S)

    def finish(self) -> None:
        for member in self.members:
            member.future.set_result(member.number)


class Numbers:
    """The group of all numbers, each of which has a call of its own."""

    packing, _ = derivatives.forward(point(REGISTRY["flatten"], np.ones(2), "float32", "graph")).packed

    def batch(self, members: Sequence[Number]) -> Slow:
        return Slow(self, members)

    def fail(self, member: Number, error: BaseException) -> None:
        member.future.set_exception(error)


NUMBERS = Numbers()


def in_lines(test: Callable[[Lines, Scheduler], Awaitable[None]], places: int = 64) -> None:
    async def run() -> None:
        scheduler = Scheduler(places)
        scheduler.start()
        lines = Lines(scheduler, 64, lambda packing, units, seconds: None)
        try:
            async with asyncio.timeout(WAIT_S):
                await test(lines, scheduler)
            await asyncio.sleep(0.05)
            assert lines.taken == 0
        finally:
            scheduler.stop()

    asyncio.run(run())


def test_what_a_turn_has_no_time_for_is_computed_in_the_next_ones_in_order() -> None:
    async def test(lines: Lines, scheduler: Scheduler) -> None:
        del scheduler
        ended, members = list[int](), [Number(i) for i in range(5)]
        for member in members:
            member.future.add_done_callback(lambda future: ended.append(future.result()))
        lines.put(NUMBERS, members[:3])
        await members[0].future
        assert lines.taken == 2
        lines.put(NUMBERS, members[3:])
        assert await asyncio.gather(*[member.future for member in members]) == ended == [0, 1, 2, 3, 4]

    in_lines(test)


def test_all_members_of_a_line_that_gets_no_turn_are_refused_and_later_ones_are_not() -> None:
    async def test(lines: Lines, scheduler: Scheduler) -> None:
        opened, until = threading.Event(), time.monotonic() + PATIENCE_S
        others = [
            asyncio.create_task(
                scheduler.run(
                    lambda checkpoint: opened.wait(PATIENCE_S), queue="short", deadline=until, owner=Owner(owner)
                )
            )
            for owner in ("running", "first", "second")
        ]
        await asyncio.sleep(0.05)
        for _ in range(2):
            members = [Number(i) for i in range(3)]
            lines.put(NUMBERS, members)
            found = await asyncio.gather(*[member.future for member in members], return_exceptions=True)
            assert [type(error) for error in found] == [Overloaded] * 3
            assert lines.taken == 0
        opened.set()
        await asyncio.gather(*others)
        lines.put(NUMBERS, [later := Number(7)])
        assert await later.future == 7

    in_lines(test, places=2)
