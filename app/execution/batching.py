"""Natural batching: evaluations that arrive while another runs share one TensorFlow call where they may.

Here it is decided which short evaluations share a call, and where it runs. Those of one turn of the event loop are
divided into batches. A batch that is known to be brief runs on the event loop. The others run on the scheduler's
thread; while one runs there, evaluations that may share the next one gather.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from app.autodiff.evaluation import Evaluation, compute
from app.autodiff.packing import Packing
from app.errors import too_late
from app.execution.lines import PATIENCE_S, AMember, Batch, Group, Lines, fail, fitting
from app.execution.scheduler import Scheduler
from app.execution.tickets import Queue
from app.runtime import modes
from app.runtime.cancellation import Checkpoint
from app.runtime.modes import KeyedArrays
from app.runtime.traces import NotTraced
from app.telemetry.accounts import NOT_CHARGED, Account, Owner
from app.telemetry.counters import NOT_RECORDED, Counters
from app.telemetry.stage_times import CURRENT, StageTimes

logger = logging.getLogger("pullback")

# Calls that take less, and do only arithmetic, run on the event loop itself: passing them to a thread takes as long,
# and most of their time is Python, which would block the loop from another thread as well.
INLINE_S = 2e-3
# The same for an evaluation that cannot share a call: if many arrive, each waits for all before it.
INLINE_ALONE_S = 5e-4


@dataclass(eq=False, slots=True)
class WaitingEvaluation:
    """An evaluation, the future of its caller, and once it has run its ``outcome`` or its ``error``.

    ``times`` are those of its request, if that is traced.
    """

    evaluation: Evaluation[Any]
    owner: Owner
    deadline: float
    future: asyncio.Future[KeyedArrays]
    counters: Counters
    times: StageTimes | None
    account: Account = NOT_CHARGED
    arrived: float = field(default_factory=time.perf_counter)
    has_begun: bool = False
    outcome: KeyedArrays | None = None
    error: BaseException | None = None
    on_release: Callable[[], None] | None = None
    may_wait: bool = True

    @property
    def units(self) -> int:
        """The units of the evaluation."""
        return self.evaluation.packed[1]

    @property
    def latest(self) -> float:
        """When its call ends: later than it, because its caller enforces the deadline."""
        return self.deadline + PATIENCE_S

    @property
    def is_done(self) -> bool:
        """Whether the caller has its result, or has given up."""
        return self.future.done()

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


@dataclass(frozen=True)
class Alike:
    """The group of the evaluations with one ``Evaluation.batch_key``."""

    batch_key: Hashable
    packing: Packing = field(compare=False)

    def batch(self, members: Sequence[WaitingEvaluation]) -> "EvaluationBatch":
        """Return the batch of these evaluations."""
        return EvaluationBatch(self, members)

    def fail(self, member: WaitingEvaluation, error: BaseException) -> None:
        """Let the caller of an evaluation get its own error, or else this one."""
        member.error = member.error or error
        member.answer()


@dataclass(eq=False)
class EvaluationBatch(Batch[WaitingEvaluation]):
    """The batch of evaluations with one ``Evaluation.batch_key``."""

    def run(self) -> None:
        """Run the evaluations whose callers wait, together or one by one, and count them; raises ``NotTraced``."""
        now, began = time.monotonic(), time.perf_counter()
        waiting = [member for member in self.members if not member.is_done and member.deadline > now]
        for member in waiting:
            member.has_begun = True
        if waiting:
            are_together = self._run_together(waiting)
            ended = time.perf_counter()
            self.seconds = ended - began if are_together and len(waiting) == len(self.members) else 0.0
            arrivals, members = [member.arrived for member in waiting], [member.times for member in waiting]
            shares = [(member.account, member.units) for member in waiting]
            waiting[0].counters.batched(arrivals, began, ended, members, shares)

    def finish(self) -> None:
        """Set the results of the futures."""
        for member in self.members:
            member.answer()

    @staticmethod
    def _run_together(waiting: Sequence[WaitingEvaluation]) -> bool:
        """Run evaluations in one call; if that fails, one by one, to find the faulty one, and return ``False``."""
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
        return True


class Batches:
    """The short evaluations of a process; everything but the calls on the thread runs on the event loop."""

    def __init__(self, scheduler: Scheduler, waiting: int) -> None:
        """Run batches on ``scheduler``; at most ``waiting`` evaluations may wait for its thread."""
        self._scheduler = scheduler
        self._arrived: dict[Group[Any], list[Any]] = {}
        self._ready, self._is_scheduled = deque[Batch[Any]](), False
        self._lines = Lines(scheduler, waiting, self._note)

    @property
    def waiting(self) -> int:
        """The number of evaluations that wait for the thread, or run there."""
        return self._lines.taken

    async def run(
        self,
        evaluation: Evaluation[Any],
        *,
        queue: Queue,
        deadline: float,
        owner: Owner,
        counters: Counters = NOT_RECORDED,
        account: Account = NOT_CHARGED,
        is_alone: bool = False,
    ) -> KeyedArrays:
        """Return the results of an evaluation of ``owner`` for its ``finish``.

        A short evaluation that is known to be brief runs inline, on the event loop, if it could share a call with none:
        because of its op, or because its request ``is_alone``. Other short ones share calls, and the rest run in their
        turn. An evaluation that has not begun at its ``deadline`` is dropped; the caller enforces the deadline
        afterwards. Raises the errors of ``Scheduler.run``.
        """
        is_short = queue == "short"
        batch_key = evaluation.batch_key if is_short else None
        packing, units = evaluation.packed
        if is_short and (is_alone or batch_key is None) and packing.runs_inline.get(packing.length_for(units)):
            with suppress(NotTraced):  # its trace has been displaced: it runs in a queue, where it is counted
                return self._run_inline(evaluation, counters, account)
        if batch_key is None:

            def work(checkpoint: Checkpoint) -> KeyedArrays:
                del checkpoint
                began = time.perf_counter()
                (results,) = compute([evaluation])
                if is_short:
                    self._note(packing, units, time.perf_counter() - began)
                return results

            return await self._scheduler.run(
                work, queue=queue, deadline=deadline, owner=owner, counters=counters, account=account
            )
        future = asyncio.get_running_loop().create_future()
        member = WaitingEvaluation(evaluation, owner, deadline, future, counters, CURRENT.get(), account)
        self.put(Alike(batch_key, packing), member)
        self._schedule()
        try:
            return await future
        finally:
            future.cancel()
            if member.on_release is not None:
                member.on_release()
            if not member.has_begun:
                counters.spent("queue", member.arrived, time.perf_counter(), account)
            del member, future

    async def warm(self, evaluation: Evaluation[Any], *, deadline: float) -> None:
        """Run an evaluation twice in the queue for compiling: the first run compiles, the second measures the time.

        Raises the errors of ``Scheduler.run``.
        """

        def work(checkpoint: Checkpoint) -> None:
            for _ in range(2):
                checkpoint()
                began = time.perf_counter()
                compute([evaluation])
                self._note(*evaluation.packed, time.perf_counter() - began)

        owner = Owner(evaluation.point.op.owner)
        await self._scheduler.run(work, queue="compile", deadline=deadline, owner=owner)

    def put(self, group: Group[AMember], member: AMember) -> None:
        """Keep a member until ``begin``."""
        self._arrived.setdefault(group, []).append(member)

    def begin(self) -> None:
        """Divide the members that have come into batches; run those that are brief, as long as a turn may last."""
        self._is_scheduled, until = False, time.perf_counter() + INLINE_S
        if not self._ready:
            arrived, self._arrived = self._arrived, {}
            for group, members in arrived.items():
                try:
                    self._divide(group, members)
                except Exception as error:
                    logger.exception("evaluations cannot be divided into batches")
                    fail(group, members, error)
        while self._ready:
            self._run_ready(self._ready.popleft())
            if time.perf_counter() > until:
                break
        if self._ready or self._arrived:
            self._schedule()

    def _schedule(self) -> None:
        """Begin in two iterations of the event loop, which read the requests that have already arrived."""
        if not self._is_scheduled:
            self._is_scheduled, loop = True, asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, self.begin)

    def _divide(self, group: Group[Any], members: Sequence[Any]) -> None:
        """Divide members into batches of lengths that are known to be brief, and those that take the thread.

        If the best length is not known to be brief, the members that fill it take the thread, which times it.
        """
        packing, units = group.packing, sum([member.units for member in members])
        is_brief, most = packing.runs_inline.get, packing.most
        best = packing.length_for(min(units, most))
        if is_brief(best) and units <= most:
            self._ready.append(group.batch(members))
            return
        rest = deque(members)
        if not is_brief(best):
            most = max(filter(is_brief, packing.lengths), default=0)
            self._lines.put(group, fitting(rest, best if most else units))
        while rest:
            if rest[0].units <= most:
                self._ready.append(group.batch(fitting(rest, most)))
            else:
                self._lines.put(group, [rest.popleft()])

    @staticmethod
    def _run_inline(evaluation: Evaluation[Any], counters: Counters, account: Account) -> KeyedArrays:
        """Run an evaluation on the event loop, and count it for ``account``; raises ``NotTraced``, without a count."""
        is_run, began = True, time.perf_counter()
        try:
            return compute([evaluation])[0]
        except NotTraced:
            is_run = False
            raise
        finally:
            ended = time.perf_counter()
            if is_run:
                counters.batched([began], began, ended, [CURRENT.get()], [(account, 1)])
            if ended - began > INLINE_S:
                Batches._note(*evaluation.packed, ended - began)

    def _run_ready(self, batch: Batch[Any]) -> None:
        """Run a batch on the event loop."""
        try:
            batch.run()
        except NotTraced:  # its trace has been displaced
            self._lines.put(batch.group, batch.members)
        except BaseException as error:  # noqa: BLE001 - it goes to the members
            fail(batch.group, batch.members, error)
        else:
            if batch.seconds > INLINE_S:
                self._note(batch.group.packing, batch.units, batch.seconds)
            batch.finish()

    @staticmethod
    def _note(packing: Packing, units: int, seconds: float) -> None:
        """Decide whether calls for so many units run inline, after one that took ``seconds``.

        They do if they are brief, and do only what is known to end soon.
        """
        length = packing.length_for(units)
        if length > packing.lengths[-1]:
            return  # such calls are of any length, and are not brief
        is_brief = seconds < (INLINE_S if packing.most > 1 else INLINE_ALONE_S)
        is_bounded = modes.is_known_bounded(packing.program, packing.mode)
        packing.runs_inline[length] = is_brief and is_bounded
