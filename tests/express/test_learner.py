"""The learner: what becomes of a lesson that shows nothing, and that lessons come one at a time."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.express.heads import Head, read_head
from app.express.learner import Learner
from app.express.lessons import Lesson, Unteachable
from app.express.memory import FAILURES, SOON, Memory
from app.runtime.traces import NotTraced
from tests.express.test_memory import HEAD, frame

OK = b"HTTP/1.1 200 OK\r\n"


class Fixed(Lesson):
    """A lesson with this outcome, after an event."""

    def __init__(self, outcome: Any, started: threading.Event | None = None) -> None:
        super().__init__(HEAD, b"{}", "a likeness", [OK])
        self.outcome, self.count, self.end = outcome, 0, started
        self.reader = cast(Any, SimpleNamespace(owner="an op"))

    def learn(self, allowed_s: float, call_of: Any) -> Any:
        del allowed_s, call_of
        self.count += 1
        if self.end is not None:
            assert self.end.wait(20)
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


def learner() -> tuple[Learner, Memory, Head]:
    memory, head = Memory(), read_head(HEAD)
    assert head is not None
    memory.add(HEAD, head)
    engine = SimpleNamespace(batches=None, deadline_s=60.0)
    return Learner(cast(Any, engine), memory), memory, head


def learn(*lessons: Fixed) -> tuple[Memory, Head]:
    """Give the lessons, each at once after the one before; return what is left."""
    teacher, memory, head = learner()

    async def run() -> None:
        for lesson in lessons:
            teacher.learn(lesson)
        for lesson in lessons:
            if lesson.end is not None:
                lesson.end.set()
        await asyncio.gather(*asyncio.all_tasks() - {cast(Any, asyncio.current_task())})

    asyncio.run(run())
    return memory, head


def test_a_frame_is_kept():
    memory, head = learn(Fixed(frame(1)))
    assert list(head.lists.values())
    assert memory.find(HEAD) is head


@pytest.mark.parametrize(
    ("outcome", "failures"),
    [(Unteachable(), 1), (Unteachable(is_lasting=True), FAILURES), (RuntimeError("a fault"), 1), (NotTraced(), 0)],
)
def test_a_lesson_that_shows_nothing(outcome: Exception, failures: int):
    """The head of an op that can never qualify rests at once."""
    memory, head = learn(Fixed(outcome))
    assert head.failures == failures
    assert (memory.find(HEAD) is None) == (failures == FAILURES)


def test_a_head_of_several_ops_does_not_rest_for_one():
    lesson = Fixed(Unteachable(is_lasting=True))
    lesson.reader = cast(Any, SimpleNamespace(owner=""))
    memory, head = learn(lesson)
    assert head.failures == 1
    assert memory.find(HEAD) is head


def test_one_lesson_at_a_time():
    """The second one comes later, when its like have been seen a few times more."""
    first, second = Fixed(frame(1), threading.Event()), Fixed(frame(2))
    memory, _ = learn(first, second)
    assert (first.count, second.count) == (1, 0)
    assert [memory.is_familiar("a likeness") for _ in range(SOON)] == [False] * (SOON - 1) + [True]
