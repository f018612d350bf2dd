"""Natural batching: calls that may share one of TensorFlow do so, when they come while another is at work.

Whoever comes first opens a batch, which waits for its turn and no longer: an idle service adds two turns of the event
loop, in which what has come in already is read; a busy one fills the next batch while the last one runs. What is brief,
and alone, waits for nothing.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from app.autodiff import padding
from app.autodiff.evaluation import Evaluation, run_together
from app.execution.fairness import Admission
from app.execution.lane import Lane, Slot
from app.runtime import traces
from app.runtime.cancellation import Checkpoint
from app.telemetry.counters import NOT_RECORDED, Counters

Result = TypeVar("Result")

# What takes less, and does nothing but arithmetic, runs on the event loop itself: to hand it over takes as long, and
# most of it is Python, which would hold up the loop from another thread as well.
BRIEF_S = 2e-3
PATIENCE_S = 1.0


@dataclass(eq=False, slots=True)
class _Member:
    """A call in a batch, and who waits for it."""

    evaluation: Evaluation[Any]
    deadline: float
    future: asyncio.Future[Any]
    counters: Counters
    came: float = field(default_factory=time.perf_counter)
    outcome: Any = None
    error: BaseException | None = None

    def answer(self) -> None:
        """Tell who waits, if anybody still does."""
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.outcome)
        else:
            self.future.set_exception(self.error)


@dataclass(eq=False)
class _Batch:
    """Calls of one batch_key, whose deadlines are at ``deadline`` or at most ``PATIENCE_S`` later."""

    deadline: float
    members: list[_Member] = field(default_factory=list[_Member])
    size: int = 0

    def takes(self, member: _Member) -> bool:
        """Tell whether a call may join: it must neither be too much, nor wait for longer than the others."""
        return self.size + member.evaluation.size <= padding.SHARED and member.deadline <= self.deadline + PATIENCE_S

    def run(self) -> None:
        """Run the calls that anybody waits for: together, and when that fails each alone, to see which is at fault."""
        now = time.monotonic()
        waiting = [member for member in self.members if not member.future.done() and member.deadline > now]
        if not waiting:
            return
        try:
            for member, outcome in zip(waiting, run_together([one.evaluation for one in waiting]), strict=True):
                member.outcome = outcome
        except BaseException as error:  # noqa: BLE001 - it goes to whoever waits
            if len(waiting) == 1:
                waiting[0].error = error
                return
            for member in waiting:
                _run_alone(member)


def _run_alone(member: _Member) -> None:
    try:
        member.outcome = member.evaluation.run()
    except BaseException as error:  # noqa: BLE001 - it goes to whoever waits
        member.error = error


class Batches:
    """The open batches of a process; all but ``_closed`` and ``_Batch.run`` happens on the event loop."""

    def __init__(self, lane: Lane, waiting: int) -> None:
        """Run batches on ``lane``, with at most ``waiting`` calls in them."""
        self._lane, self._admission = lane, Admission(waiting)
        self._open: dict[Hashable, _Batch] = {}
        self._lock = threading.Lock()
        self._brief: dict[Hashable, bool] = {}
        self._tasks: set[asyncio.Task[None]] = set()  # which the loop itself would let go

    @property
    def waiting(self) -> int:
        """How many calls in batches have no answer yet."""
        return self._admission.taken

    async def run(
        self, evaluation: Evaluation[Result], *, slot: Slot, deadline: float, counters: Counters = NOT_RECORDED
    ) -> Result:
        """Return what a call finds, alone or in batch_key.

        Work that has not begun at its ``deadline`` is dropped; whoever awaits this keeps the time. Raises as
        ``Lane.run`` does.
        """
        batch_key, owner = evaluation.batch_key, evaluation.point.op.name
        if batch_key is None or slot == "long":
            return await self._lane.run(counters.queued(_alone(evaluation)), slot=slot, deadline=deadline, owner=owner)
        self._admission.take(owner)
        member = _Member(evaluation, deadline, asyncio.get_running_loop().create_future(), counters)
        try:
            self._join(batch_key, member)
            return await member.future
        finally:
            self._admission.give(owner)
            member.future.cancel()
            del member

    def is_brief(self, evaluation: Evaluation[Any]) -> bool:
        """Return whether an evaluation may run on the event loop: it is short, and does nothing but arithmetic."""
        return evaluation.batch_key is not None and self._brief.get(_cost(evaluation, evaluation.size), False)

    def run_at_once(self, evaluation: Evaluation[Result], counters: Counters) -> Result:
        """Return what a call finds that ``is_brief``, with nobody to wait for; raises as ``Lane.run`` does."""
        began = time.perf_counter()
        try:
            return evaluation.run()
        finally:
            counters.batched([began], began, time.perf_counter())

    async def warm(self, evaluation: Evaluation[Any], *, deadline: float) -> None:
        """Run a call twice, alone and as long work: the first time compiles, the second tells how long it takes.

        It takes no caller's place. Raises as ``Lane.run`` does.
        """
        member = _Member(evaluation, deadline, asyncio.get_running_loop().create_future(), NOT_RECORDED)
        batch = _Batch(deadline, [member], evaluation.size)

        def work(checkpoint: Checkpoint) -> None:
            self._measured(batch)
            checkpoint()
            self._measured(batch)

        await self._lane.run(work, slot="long", deadline=deadline, owner=evaluation.point.op.name)
        if member.error is not None:
            raise member.error

    def _join(self, batch_key: Hashable, member: _Member) -> None:
        with self._lock:
            batch = self._open.get(batch_key)
            if batch is None or not batch.takes(member):
                batch = self._open[batch_key] = _Batch(member.deadline)
                loop = asyncio.get_running_loop()
                loop.call_soon(loop.call_soon, self._begin, batch_key, batch)
            batch.members.append(member)
            batch.size += member.evaluation.size

    def _begin(self, batch_key: Hashable, batch: _Batch) -> None:
        if self._brief.get(_cost(batch.members[0].evaluation, batch.size)):
            self._closed(batch_key, batch)
            self._measured(batch)
            _answer(batch)
        else:
            task = asyncio.get_running_loop().create_task(self._through_the_lane(batch_key, batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _through_the_lane(self, batch_key: Hashable, batch: _Batch) -> None:
        def work(checkpoint: Checkpoint) -> None:
            del checkpoint
            self._closed(batch_key, batch)
            self._measured(batch)

        point = batch.members[0].evaluation.point
        # XLA may have to compile for this length, and short work should not have to wait for that.
        is_new = point.spec.mode == "xla" and _cost(batch.members[0].evaluation, batch.size) not in self._brief
        slot: Slot = "long" if is_new else "short"
        try:
            await self._lane.run(work, slot=slot, deadline=batch.deadline + PATIENCE_S, owner=point.op.name)
        except BaseException as error:
            self._closed(batch_key, batch)
            for member in batch.members:
                member.error = member.error or error
            if not isinstance(error, Exception):
                raise
        finally:
            _answer(batch)

    def _closed(self, batch_key: Hashable, batch: _Batch) -> None:
        """Let nobody join any more."""
        with self._lock:
            if self._open.get(batch_key) is batch:
                del self._open[batch_key]

    def _measured(self, batch: _Batch) -> None:
        began = time.perf_counter()
        batch.run()
        ended = time.perf_counter()
        first = batch.members[0].evaluation
        is_arithmetic = traces.TRACES.is_arithmetic(first.program, first.point.spec.mode)
        self._brief[_cost(first, batch.size)] = is_arithmetic and ended - began < BRIEF_S
        batch.members[0].counters.batched([member.came for member in batch.members], began, ended)


def _alone(evaluation: Evaluation[Result]) -> Callable[[Checkpoint], Result]:
    """Return a call as work for the lane."""

    def work(checkpoint: Checkpoint) -> Result:
        del checkpoint
        return evaluation.run()

    return work


def _cost(evaluation: Evaluation[Any], size: int) -> Hashable:
    """Return a key that is equal for batches that take equally long: such evaluations, ``size`` numbers in all."""
    return evaluation.program, evaluation.point.spec.mode, evaluation.point.spec.device, padding.length_for(size)


def _answer(batch: _Batch) -> None:
    for member in batch.members:
        member.answer()
