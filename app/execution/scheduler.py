"""The scheduler: TensorFlow runs here, on dedicated threads, not on the event loop (except for brief evaluations).

There are four slots, so that none of these starves another: short work, long work, checks, and work that XLA must
compile for first, one at a time. Each slot serves the ops in turn, so that no op starves another. All share one limit
of waiting work; work that no caller waits for is dropped before it starts.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar

from app.errors import DeadlinePassed, too_late
from app.execution.fairness import Admission, RoundRobin
from app.runtime.cancellation import Checkpoint, Interruptible
from app.runtime.traces import NotTraced, forbid_tracing, traces_of
from ops import Mode

Result = TypeVar("Result")
Slot = Literal["short", "long", "check", "compile"]
# The modes whose traces each slot must leave to the slot "compile". XLA may compile for a minute.
ELSEWHERE: Mapping[Slot, Sequence[Mode]] = {"short": ("xla",), "long": ("xla",), "check": (), "compile": ()}


class Overrun(NamedTuple):
    """Work that runs past its deadline: by how much, its owner, and the CPU time of its thread.

    ``is_tracing``: the thread traces or compiles, which cannot be interrupted, and may take long on a busy machine.
    """

    seconds: float
    owner: str
    slot: Slot
    cpu_s: float
    is_tracing: bool


@dataclass(eq=False)
class _Ticket:
    """A piece of an op's work, and whether its caller still waits."""

    work: Callable[[Checkpoint], Any]
    deadline: float
    owner: str
    future: Future[Any] = field(default_factory=Future[Any])
    takes_place: bool = False
    abandoned: bool = False
    running: Interruptible | None = None

    def check(self) -> None:
        """Raise ``DeadlinePassed`` when no caller waits; long work calls this between its chunks."""
        if self.abandoned or time.monotonic() > self.deadline:
            raise DeadlinePassed("the work was abandoned: its deadline passed, or its client disconnected")

    def run(self) -> None:
        """Do the work, unless it was abandoned in the queue."""
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            with Interruptible(self.deadline) as self.running, traces_of(self.owner):
                self.check()
                self.future.set_result(self.work(self.check))
        except BaseException as error:  # noqa: BLE001 - it goes to the caller
            self.future.set_exception(error)

    def abandon(self) -> None:
        """Mark the work as abandoned, and cancel it if it runs."""
        self.abandoned = True
        if self.running is not None and not self.future.done():
            self.running.cancel()


class Scheduler:
    """The slots and their queues."""

    def __init__(self, waiting: int) -> None:
        """Queue at most ``waiting`` pieces of work."""
        self._admission = Admission(waiting)
        self._queues: dict[Slot, RoundRobin[_Ticket]] = {slot: RoundRobin() for slot in ELSEWHERE}
        self._running: dict[Slot, _Ticket] = {}
        self._changed = threading.Condition()
        self._ended = False

    def start(self) -> None:
        """Start the slots, on daemon threads: a kernel that never returns must not keep the process alive."""
        for slot in self._queues:
            threading.Thread(target=self._serve, args=(slot,), name=f"scheduler-{slot}", daemon=True).start()

    def stop(self) -> None:
        """Let the slots finish their queued work and end."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    async def run(self, work: Callable[[Checkpoint], Result], *, slot: Slot, deadline: float, owner: str) -> Result:
        """Return ``work(checkpoint)``, run on a slot's thread in the turn of its ``owner``.

        If XLA must compile for the work first, it starts again in the slot for that. ``deadline`` is a time of
        ``time.monotonic``, which is also the loop's clock. Raises ``Overloaded`` when no more of the owner's work may
        wait, ``DeadlinePassed`` at the deadline, whether or not the work has ended, and the errors of ``work``.
        """
        try:
            return await self._run(work, slot, deadline, owner)
        except NotTraced:
            pass
        except BaseException:
            del work  # as below
            raise
        try:
            return await self._run(work, "compile", deadline, owner)
        finally:
            del work  # an error keeps the frames that it passes, and this frame would keep the tensors

    async def _run(self, work: Callable[[Checkpoint], Result], slot: Slot, deadline: float, owner: str) -> Result:
        ticket = _Ticket(work, deadline, owner)
        del work
        self._enter(slot, ticket)
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                return await asyncio.wrap_future(ticket.future)
        except TimeoutError:
            raise too_late() from None
        finally:
            self._leave(slot, ticket)
            ticket.abandon()
            del ticket

    @property
    def waiting(self) -> int:
        """The number of pieces of work that have not begun."""
        return self._admission.taken

    @property
    def is_idle(self) -> bool:
        """Whether no work runs or waits."""
        with self._changed:
            return not self._running and not any(self._queues.values())

    def overruns(self) -> list[Overrun]:
        """Return the running work that is past its deadline."""
        now = time.monotonic()
        found = list[Overrun]()
        with self._changed:
            for slot, ticket in self._running.items():
                late, running = now - ticket.deadline, ticket.running
                if late > 0 and running is not None:
                    found.append(Overrun(late, ticket.owner, slot, running.cpu_s, running.is_uninterrupted))
        return found

    def _enter(self, slot: Slot, ticket: _Ticket) -> None:
        with self._changed:
            # Work that an idle slot starts at once needs no place.
            ticket.takes_place = slot in self._running or bool(self._queues[slot])
            if ticket.takes_place:
                self._admission.take(ticket.owner)
            self._queues[slot].put(ticket.owner, ticket)
            self._changed.notify_all()

    def _leave(self, slot: Slot, ticket: _Ticket) -> None:
        """Remove work that no caller waits for from the queue, where it would hold its tensors and a place."""
        with self._changed:
            if self._queues[slot].remove(ticket.owner, ticket) and ticket.takes_place:
                self._admission.give(ticket.owner)

    def _serve(self, slot: Slot) -> None:
        forbid_tracing(ELSEWHERE[slot])
        while (ticket := self._next(slot)) is not None:
            ticket.run()
            with self._changed:
                del self._running[slot]
            del ticket  # or it would keep its tensors until the next ticket

    def _next(self, slot: Slot) -> _Ticket | None:
        queue = self._queues[slot]
        with self._changed:
            self._changed.wait_for(lambda: queue or self._ended)
            if not queue:
                return None
            ticket = self._running[slot] = queue.take()
            if ticket.takes_place:
                self._admission.give(ticket.owner)
            return ticket
