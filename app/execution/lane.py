"""The lane: TensorFlow runs here, on dedicated threads, not on the event loop (except for brief evaluations).

There are two slots, one for short work and one for long, so that neither starves the other. Each serves the ops in
turn, so that no op starves another. Both share one limit of waiting work; work that no caller waits for is dropped
before it starts.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar

from app.errors import DeadlinePassed, too_late
from app.execution.fairness import Admission, RoundRobin
from app.runtime.cancellation import Checkpoint, Interruptible

Result = TypeVar("Result")
Slot = Literal["short", "long"]


class Overrun(NamedTuple):
    """Work that runs past its deadline: by how much, and its owner."""

    seconds: float
    owner: str


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
            with Interruptible(self.deadline) as self.running:
                self.check()
                self.future.set_result(self.work(self.check))
        except BaseException as error:  # noqa: BLE001 - it goes to the caller
            self.future.set_exception(error)

    def abandon(self) -> None:
        """Mark the work as abandoned, and cancel it if it runs."""
        self.abandoned = True
        if self.running is not None and not self.future.done():
            self.running.cancel()


class Lane:
    """The two slots and their queue."""

    def __init__(self, waiting: int) -> None:
        """Queue at most ``waiting`` pieces of work."""
        self._admission = Admission(waiting)
        self._queues: dict[Slot, RoundRobin[_Ticket]] = {"short": RoundRobin(), "long": RoundRobin()}
        self._running: dict[Slot, _Ticket] = {}
        self._changed = threading.Condition()
        self._ended = False

    def start(self) -> None:
        """Start the slots, on daemon threads: a kernel that never returns must not keep the process alive."""
        for slot in self._queues:
            threading.Thread(target=self._serve, args=(slot,), name=f"lane-{slot}", daemon=True).start()

    def stop(self) -> None:
        """Let the slots finish their queued work and end."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    async def run(self, work: Callable[[Checkpoint], Result], *, slot: Slot, deadline: float, owner: str) -> Result:
        """Return ``work(checkpoint)``, run on a slot's thread in the turn of its ``owner``.

        ``deadline`` is a time of ``time.monotonic``, which is also the loop's clock. Raises ``Overloaded`` when no
        more of the owner's work may wait, ``DeadlinePassed`` at the deadline, whether or not the work has ended, and
        the errors of ``work``.
        """
        ticket = _Ticket(work, deadline, owner)
        del work  # an error keeps the frames that it passes, and this frame would keep the tensors
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

    def overrun(self) -> Overrun | None:
        """Return the running work that is furthest past its deadline, ``None`` if none is."""
        now = time.monotonic()
        with self._changed:
            overruns = [Overrun(now - ticket.deadline, ticket.owner) for ticket in self._running.values()]
        return max((overrun for overrun in overruns if overrun.seconds > 0), default=None)

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
