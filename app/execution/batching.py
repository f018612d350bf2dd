"""Natural batching: evaluations that arrive while another runs share one TensorFlow call where they may.

The first evaluation opens a batch, which waits only for its turn. An idle service adds two iterations of the event
loop, which read the requests that have already arrived; a busy service fills the next batch while the previous one
runs. A brief evaluation of the only request in progress does not wait.
"""

import asyncio
import threading
import time
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from app.autodiff.evaluation import Evaluation, compute
from app.autodiff.packing import Packing
from app.errors import too_late
from app.execution.fairness import Admission
from app.execution.scheduler import Queue, Scheduler
from app.runtime import modes
from app.runtime.cancellation import Checkpoint
from app.runtime.modes import KeyedArrays
from app.runtime.traces import NotTraced
from app.telemetry.counters import NOT_RECORDED, Counters

# Batches that take less, and do only arithmetic, run on the event loop itself: passing them to a thread takes as long,
# and most of their time is Python, which would block the loop from another thread as well.
INLINE_S = 2e-3
# The same for an evaluation that cannot share a call: if many arrive, each waits for all before it.
INLINE_ALONE_S = 5e-4
# How much later than the deadline of its first evaluation the others of a batch may have theirs.
PATIENCE_S = 1.0


@dataclass(eq=False, slots=True)
class _Member:
    """An evaluation in a batch, whose share of the queue it takes, and the future of its caller."""

    evaluation: Evaluation[Any]
    owner: str
    deadline: float
    future: asyncio.Future[KeyedArrays]
    counters: Counters
    arrived: float = field(default_factory=time.perf_counter)
    has_begun: bool = False
    outcome: KeyedArrays | None = None
    error: BaseException | None = None

    def run(self) -> None:
        """Run the evaluation by itself; raises ``NotTraced``."""
        try:
            (self.outcome,) = compute([self.evaluation])
        except NotTraced:
            raise
        except BaseException as error:  # noqa: BLE001 - it goes to the caller
            self.error = error

    def answer(self) -> None:
        """Set the result of the future, unless the caller has given up.

        An evaluation that was dropped because its deadline passed in the queue gets that as its error.
        """
        # The traceback of an error refers to this member: a member that kept its error would be a reference cycle.
        error, self.error = self.error, None
        if self.future.done():
            return
        if error is not None:
            self.future.set_exception(error)
        elif self.outcome is None:
            self.future.set_exception(too_late())
        else:
            self.future.set_result(self.outcome)


@dataclass(eq=False)
class _Batch:
    """Evaluations of one batch key, whose deadlines are at most ``PATIENCE_S`` after ``deadline``."""

    deadline: float
    members: list[_Member] = field(default_factory=list[_Member])
    size: int = 0

    def takes(self, member: _Member) -> bool:
        """Return whether an evaluation may join: it must not be too large, nor have a much later deadline."""
        packing, size = member.evaluation.packed
        return self.size + size <= packing.most and member.deadline <= self.deadline + PATIENCE_S

    def run(self) -> bool:
        """Run the evaluations whose callers wait: together, or if that fails one by one, to find the faulty one.

        Return whether all evaluations ran, and together. Raises ``NotTraced``.
        """
        now = time.monotonic()
        waiting = [member for member in self.members if not member.future.done() and member.deadline > now]
        if not waiting:
            return False
        for member in waiting:
            member.has_begun = True
        try:
            for member, outcome in zip(waiting, compute([each.evaluation for each in waiting]), strict=True):
                member.outcome = outcome
        except NotTraced:
            raise
        except BaseException as error:  # noqa: BLE001 - it goes to the caller
            if len(waiting) == 1:
                waiting[0].error = error
            else:
                for member in waiting:
                    member.run()
            return False
        return len(waiting) == len(self.members)


class Batches:
    """The open batches of a process. Everything but ``_close`` and ``_measure`` runs on the event loop."""

    def __init__(self, scheduler: Scheduler, waiting: int) -> None:
        """Run batches on ``scheduler``, with at most ``waiting`` evaluations in all of them."""
        self._scheduler, self._admission = scheduler, Admission(waiting)
        self._open: dict[Hashable, _Batch] = {}
        self._lock = threading.Lock()
        self._tasks: set[asyncio.Task[None]] = set()  # the loop keeps only weak references

    @property
    def waiting(self) -> int:
        """The number of evaluations in batches that have no result yet."""
        return self._admission.taken

    async def run(
        self,
        evaluation: Evaluation[Any],
        *,
        queue: Queue,
        deadline: float,
        owner: str,
        counters: Counters = NOT_RECORDED,
        is_alone: bool = False,
    ) -> KeyedArrays:
        """Return the results of an evaluation of ``owner`` for its ``finish``.

        A short evaluation that is known to be brief runs inline, on the event loop, if it could share a call with none:
        because of its op, or because its request ``is_alone``. Other short ones run in batches, and the rest in their
        turn. An evaluation that has not begun at its ``deadline`` is dropped; the caller enforces the deadline
        afterwards. Raises the errors of ``Scheduler.run``.
        """
        is_short = queue == "short"
        batch_key = evaluation.batch_key if is_short else None
        if is_short and (is_alone or batch_key is None) and _runs_inline(evaluation):
            with suppress(NotTraced):  # its trace has been displaced: it runs in a queue, where it is counted
                return self._run_inline(evaluation, counters)
        if batch_key is None:
            packing, size = evaluation.packed

            def work(checkpoint: Checkpoint) -> KeyedArrays:
                del checkpoint
                began = time.perf_counter()
                (results,) = compute([evaluation])
                if is_short:
                    self.note(packing, size, time.perf_counter() - began)
                return results

            return await self._scheduler.run(work, queue=queue, deadline=deadline, owner=owner, counters=counters)
        self._admission.take(owner)
        member = _Member(evaluation, owner, deadline, asyncio.get_running_loop().create_future(), counters)
        try:
            self._join(batch_key, member)
            return await member.future
        finally:
            self._admission.give(owner)
            member.future.cancel()
            if not member.has_begun:
                counters.gave_up(member.arrived)
            del member

    @staticmethod
    def _run_inline(evaluation: Evaluation[Any], counters: Counters) -> KeyedArrays:
        """Run an evaluation on the event loop, and count it; raises ``NotTraced``, without a count."""
        is_run, began = True, time.perf_counter()
        try:
            return compute([evaluation])[0]
        except NotTraced:
            is_run = False
            raise
        finally:
            ended = time.perf_counter()
            if is_run:
                counters.batched([began], began, ended)
            if ended - began > INLINE_S:
                packing, size = evaluation.packed
                packing.runs_inline[packing.length_for(size)] = False

    @staticmethod
    def note(packing: Packing, size: int, seconds: float) -> None:
        """Decide whether evaluations with ``size`` units run inline, after a run that took ``seconds``.

        They do if they are brief, and do only what is known to end soon.
        """
        length = packing.length_for(size)
        if length > packing.lengths[-1]:
            return  # such calls are of any length, and are not brief
        is_brief = seconds < (INLINE_S if packing.most > 1 else INLINE_ALONE_S)
        is_bounded = modes.is_known_bounded(packing.program, packing.mode)
        packing.runs_inline[length] = is_brief and is_bounded

    def enter(self, owner: str) -> None:
        """Take a place among the evaluations that wait, until ``leave``; raises ``Overloaded``."""
        self._admission.take(owner)

    def leave(self, owner: str) -> None:
        """Return a place."""
        self._admission.give(owner)

    async def warm(self, evaluation: Evaluation[Any], *, deadline: float) -> None:
        """Run an evaluation twice in the queue for compiling: the first run compiles, the second measures the time.

        It takes no place in the queue of batches. Raises the errors of ``Scheduler.run``.
        """
        owner, future = evaluation.point.op.owner, asyncio.get_running_loop().create_future()
        member = _Member(evaluation, owner, deadline, future, NOT_RECORDED)
        batch = _Batch(deadline, [member], evaluation.packed[1])

        def work(checkpoint: Checkpoint) -> None:
            self._measure(batch)
            checkpoint()
            self._measure(batch)

        await self._scheduler.run(work, queue="compile", deadline=deadline, owner=owner)
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
            batch.size += member.evaluation.packed[1]

    def _begin(self, batch_key: Hashable, batch: _Batch) -> None:
        packing, _ = batch.members[0].evaluation.packed
        if packing.runs_inline.get(packing.length_for(batch.size)):
            self._close(batch_key, batch)
            with suppress(NotTraced):
                self._measure(batch)
                _answer(batch)
                return
        task = asyncio.get_running_loop().create_task(self._run_on_scheduler(batch_key, batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_on_scheduler(self, batch_key: Hashable, batch: _Batch) -> None:
        def work(checkpoint: Checkpoint) -> None:
            del checkpoint
            self._close(batch_key, batch)
            self._measure(batch)

        # The first one pays for a trace.
        owner = batch.members[0].owner
        try:
            await self._scheduler.run(work, queue="short", deadline=batch.deadline + PATIENCE_S, owner=owner)
        except BaseException as error:
            self._close(batch_key, batch)
            for member in batch.members:
                member.error = member.error or error
            if not isinstance(error, Exception):
                raise
        finally:
            _answer(batch)

    def _close(self, batch_key: Hashable, batch: _Batch) -> None:
        """Let no more evaluations join."""
        with self._lock:
            if self._open.get(batch_key) is batch:
                del self._open[batch_key]

    def _measure(self, batch: _Batch) -> None:
        """Run, count and time a batch; if its evaluations ran together, decide whether such batches run inline."""
        began = time.perf_counter()
        is_typical = batch.run()
        ended = time.perf_counter()
        if is_typical:
            self.note(batch.members[0].evaluation.packed[0], batch.size, ended - began)
        if arrivals := [member.arrived for member in batch.members if member.has_begun]:
            batch.members[0].counters.batched(arrivals, began, ended)


def _runs_inline(evaluation: Evaluation[Any]) -> bool | None:
    packing, size = evaluation.packed
    return packing.runs_inline.get(packing.length_for(size))


def _answer(batch: _Batch) -> None:
    for member in batch.members:
        member.answer()
