"""The scheduler: TensorFlow runs here, on dedicated threads, not on the event loop (except for brief evaluations).

There are six queues, so that none of these starves another: short work, long work, checks, work that must be traced
or compiled first, the catalogue: descriptions of ops, and ops made of graphs, and large bodies and responses in JSON.
Each queue serves its owners in turn, so that no op or key starves another. All share one limit of waiting work; work
that no caller waits for is dropped before it starts.

The queue for compiling has several threads, the others one each. Tracing is Python, so more threads do not make it
faster: only ``AT_ONCE`` traces run at once until one turns out to be slow, and then another begins beside it. An owner
has one running there, and a second one only when nobody waits for the first any more.

The code of an op may wait, or compute, while it is traced, and nothing can stop it. Such a trace keeps its thread, and
another thread takes its place, up to ``THREADS``. An op gets no new trace while ``OWN`` of its traces are late.
"""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from app.errors import DeadlinePassed, Overloaded, too_late
from app.execution.tickets import Admission, Overrun, Queue, RoundRobin, Ticket
from app.gradcheck.pace import in_order
from app.gradcheck.report import Step
from app.processes.steps import OpChecks
from app.runtime.cancellation import Checkpoint
from app.runtime.trace_entry import RETRY_S
from app.runtime.traces import NotTraced, forbid_tracing, let_traces_outlive
from app.telemetry.accounts import NOT_CHARGED, Account, Owner
from app.telemetry.counters import NOT_RECORDED, Counters
from app.telemetry.stage_times import CURRENT, StageTimes
from ops import Mode

Result = TypeVar("Result")
# The modes whose traces each queue must leave to the queue "compile": to trace or to compile may take a minute.
TRACED: Sequence[Mode] = ("graph", "v1", "xla")
LEFT_TO_COMPILE: Mapping[Queue, Sequence[Mode]] = {
    **{"short": TRACED, "long": TRACED},
    **{"check": (), "compile": (), "catalogue": (), "json": ()},
}
# How many pieces of work the queue for compiling runs; how many of them at once, not counting work that has run for
# ``SLOW_S``; and how many an owner may have, all but one of them abandoned.
COMPILERS, AT_ONCE, SLOW_S, OWN = 8, 2, 1.0, 2
# The threads of a queue that traces, with those that late traces keep.
THREADS: Mapping[Queue, int] = {"compile": 40, "check": 8}


class Scheduler:
    """The queues and their threads."""

    def __init__(self, waiting: int) -> None:
        """Queue at most ``waiting`` pieces of work."""
        self._admission = Admission(waiting)
        self._queues: dict[Queue, RoundRobin[Ticket]] = {queue: RoundRobin() for queue in LEFT_TO_COMPILE}
        self._running: dict[Queue, list[Ticket]] = {queue: [] for queue in LEFT_TO_COMPILE}
        self._threads = Counter[Queue]()
        self._lock = threading.Lock()
        self._changed = {queue: threading.Condition(self._lock) for queue in LEFT_TO_COMPILE}
        self._ended = False

    def start(self) -> None:
        """Start the threads, as daemons: a kernel that never returns must not keep the process alive."""
        for queue in self._queues:
            self._start_thread(queue)

    def stop(self) -> None:
        """Let the threads finish the queued work and end."""
        with self._lock:
            self._ended = True
            for changed in self._changed.values():
                changed.notify_all()

    async def run(
        self,
        work: Callable[[Checkpoint], Result],
        *,
        queue: Queue,
        deadline: float,
        owner: Owner,
        counters: Counters = NOT_RECORDED,
        account: Account = NOT_CHARGED,
    ) -> Result:
        """Return ``work(checkpoint)``, run on the thread of a queue in the turn of its ``owner``.

        If the work must be traced or compiled first, it starts again in the queue for that. ``deadline`` is a time of
        ``time.monotonic``, which is also the loop's clock. ``account`` pays for the work. Raises ``Overloaded`` when no
        more of the owner's work may wait, ``DeadlinePassed`` at the deadline, whether or not the work has ended, and
        the errors of ``work``.
        """
        submit = partial(
            self.submit,
            deadline=deadline,
            owner=owner,
            counters=counters,
            times=CURRENT.get(),
            account=account,
        )
        ticket = submit(work, queue=queue)
        del work
        try:
            while True:
                try:
                    async with asyncio.timeout(deadline - time.monotonic()):
                        return await asyncio.wrap_future(ticket.future)
                except NotTraced:
                    work = ticket.work
                    ticket = submit(work, queue="compile")
                    del work
        except TimeoutError:
            raise too_late() from None
        finally:
            if ticket.running is None or not ticket.future.done():
                self.abandon(ticket)
            else:
                # An error keeps the frame of the ticket, which would keep the error.
                del ticket.future
            del ticket  # an error keeps the frames that it passes, and this frame would keep the tensors

    def submit(
        self,
        work: Callable[[Checkpoint], Any],
        *,
        queue: Queue,
        deadline: float,
        owner: Owner,
        counters: Counters = NOT_RECORDED,
        times: StageTimes | None = None,
        account: Account = NOT_CHARGED,
    ) -> Ticket:
        """Queue ``work(checkpoint)`` and return its ticket, whose future gets the result, or ``NotTraced``.

        ``times`` are those of its request, if that is traced.
        A caller that waits no more, at the latest at the deadline, abandons the ticket. Raises ``Overloaded``, also if
        the work must be traced, and too many traces of its op are late, or of all ops.
        """
        ticket = Ticket(work, queue, deadline, owner, counters, account, times=times)
        with self._lock:
            if queue in THREADS:
                self._refuse_late(queue, owner.op)
            # Work that an idle thread starts at once needs no place.
            ticket.takes_place = not self._may_start(queue, owner) or bool(self._queues[queue])
            if ticket.takes_place:
                self._admission.take(owner)
            self._queues[queue].put(owner, ticket)
            self._changed[queue].notify()
        return ticket

    def abandon(self, ticket: Ticket) -> None:
        """Cancel work that no caller waits for; remove it from the queue, where it would keep its tensors and place."""
        with self._lock:
            if self._queues[ticket.queue].remove(ticket.owner, ticket) and ticket.takes_place:
                self._admission.give(ticket.owner)
            ticket.abandoned = True
            self._changed[ticket.queue].notify()  # the owner may start other work
        if ticket.running is not None:
            ticket.running.cancel()

    @property
    def waiting(self) -> int:
        """The number of pieces of work that have not begun."""
        return self._admission.taken

    @property
    def is_idle(self) -> bool:
        """Whether no work runs or waits."""
        with self._lock:
            return not any(self._running.values()) and not any(self._queues.values())

    def overruns(self) -> list[Overrun]:
        """Return the running work that is past its deadline, without traces, which hold no other work.

        The catalogue has none: it may wait for a file system that does not answer, and no computation waits for it.
        """
        with self._lock:
            return [late for queue in self._queues if queue != "catalogue" for late in self._overruns(queue)]

    def refuse_behind(self, late_s: float) -> None:
        """Refuse the work that waits for a computation so long past its deadline, with ``Overloaded``.

        That is the work of queues with one thread; those that trace have others.
        """
        refused = list[tuple[Ticket, Overrun]]()
        with self._lock:
            for queue in self._queues.keys() - THREADS.keys() - {"catalogue"}:
                waiting, stuck = self._queues[queue], max(self._overruns(queue), default=None)
                if stuck is not None and stuck.seconds > late_s:
                    refused += [(ticket, stuck) for owner in [*waiting] for ticket in waiting.pop(owner)]
            for ticket, _ in refused:
                if ticket.takes_place:
                    self._admission.give(ticket.owner)
        for ticket, stuck in refused:
            if ticket.future.set_running_or_notify_cancel():
                ticket.future.set_exception(stuck.refusal)

    def _overruns(self, queue: Queue) -> list[Overrun]:
        return [late for ticket in self._running[queue] if (late := ticket.overrun) is not None]

    def late_traces(self) -> list[Ticket]:
        """Return the work that traces or compiles long past its deadline: each piece keeps a thread."""
        with self._lock:
            return [ticket for queue in THREADS for ticket in self._running[queue] if ticket.is_late_trace]

    def _refuse_late(self, queue: Queue, op: str) -> None:
        """Raise ``Overloaded`` if too many traces of an op are late, or keep all threads of the queue."""
        late = [ticket for ticket in self._running[queue] if ticket.is_late_trace]
        own = [ticket for ticket in late if ticket.owner.op == op]
        found, of = (own, f" of op {op}") if len(own) >= OWN else (late, "")
        if found is own or len(late) >= THREADS[queue]:
            longest = max(ticket.late_s for ticket in found)
            message = f"{len(found)} traces{of} have not ended, the oldest {longest:.0f} s past its deadline"
            cure = "try mode eager, which is not traced, or this again later"
            raise Overloaded(f"{message}; {cure}", retry_after_s=RETRY_S)

    def _may_start(self, queue: Queue, owner: Owner) -> bool:
        """Return whether a thread of a queue may start work of an owner."""
        running = self._running[queue]
        if queue not in THREADS:
            return not running
        in_time = [ticket for ticket in running if not ticket.is_late_trace]
        if queue != "compile":
            return not in_time
        now, own = time.monotonic(), [ticket for ticket in running if ticket.owner == owner]
        at_once = sum(now - ticket.began < SLOW_S for ticket in in_time)
        has_place = at_once < AT_ONCE and len(in_time) < COMPILERS
        return has_place and len(own) < OWN and all(ticket.abandoned for ticket in own)

    def _start_thread(self, queue: Queue) -> None:
        """Start a thread for a queue that has no idle one, if it may have more; raises ``RuntimeError``."""
        if len(self._running[queue]) >= self._threads[queue] < THREADS.get(queue, 1):
            threading.Thread(target=self._serve, args=(queue,), name=f"scheduler-{queue}", daemon=True).start()
            self._threads[queue] += 1

    def _serve(self, queue: Queue) -> None:
        """Run the work of a queue in turn, until the scheduler has stopped and none is left."""
        forbid_tracing(LEFT_TO_COMPILE[queue])
        if queue == "compile":
            let_traces_outlive()
        while (ticket := self._take(queue)) is not None:
            ticket.run()
            with self._lock:
                self._running[queue].remove(ticket)
                self._changed[queue].notify_all()
            del ticket  # or it would keep its tensors until the next ticket

    def _take(self, queue: Queue) -> Ticket | None:
        """Wait for work of a queue that may start, and take it; return ``None`` at the end."""
        waiting = self._queues[queue]
        with self._lock:
            while (owner := next((each for each in waiting if self._may_start(queue, each)), None)) is None:
                if self._ended and not waiting:
                    return None
                # What runs becomes slow without a notice.
                self._changed[queue].wait(SLOW_S / 4 if waiting else None)
            ticket = waiting.take(owner)
            ticket.began = time.monotonic()
            self._running[queue].append(ticket)
            with suppress(RuntimeError):  # the process has no further thread: the next work waits for this one
                self._start_thread(queue)
            if ticket.takes_place:
                self._admission.give(ticket.owner)
        return ticket


@dataclass(frozen=True)
class CheckerInService:
    """Runs checks in this process, on the scheduler, in turns with other checks."""

    scheduler: Scheduler

    async def steps(self, checks: OpChecks) -> AsyncGenerator[Step]:
        """Run the steps: see ``Checker``."""
        limits = checks.limits.of_op()
        for step in in_order(checks.report):
            if time.monotonic() >= limits.until:
                step.cure = limits.cure
                continue
            yield step
            deadline, step.cure = limits.step()
            with suppress(DeadlinePassed):
                await self.scheduler.run(
                    step.run,
                    queue="check",
                    deadline=deadline,
                    owner=checks.owner,
                    counters=checks.counters,
                    account=checks.account,
                )
