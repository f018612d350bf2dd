"""The lane: every TensorFlow call of the service runs here, on threads of its own, never on the event loop.

There are two slots, one for short work and one for long, so that neither starves the other. Both draw on one bounded
queue; work that nobody waits for any more is dropped before it starts.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from app.errors import DeadlinePassed, Overloaded
from app.modes import Interruptible

Result = TypeVar("Result")
Checkpoint = Callable[[], None]
Slot = Literal["short", "long"]


@dataclass
class _Ticket:
    """A piece of work, and whether anybody still waits for it."""

    work: Callable[[Checkpoint], Any] | None
    deadline: float
    future: Future[Any] = field(default_factory=Future[Any])
    abandoned: bool = False
    started: bool = False
    running: Interruptible | None = None

    def check(self) -> None:
        """Raise ``DeadlinePassed`` when nobody waits: what long work calls between its chunks."""
        if self.abandoned or time.monotonic() > self.deadline:
            raise DeadlinePassed("the work was given up: its deadline passed, or its client is gone")

    def run(self) -> None:
        """Do the work, unless it was given up while it waited."""
        work, self.work = self.work, None
        if work is None or not self.future.set_running_or_notify_cancel():
            return
        try:
            with Interruptible(self.deadline) as self.running:
                self.check()
                self.future.set_result(work(self.check))
        except BaseException as error:  # noqa: BLE001 - it goes to whoever waits
            self.future.set_exception(error)

    def abandon(self) -> None:
        """Say that nobody waits: work that has not begun never will, and drops its tensors; what runs is cancelled."""
        self.abandoned, self.work = True, None
        if self.running is not None and not self.future.done():
            self.running.cancel()


class Lane:
    """The two slots and their queue."""

    def __init__(self, waiting: int) -> None:
        """Hold at most ``waiting`` pieces of work that have not begun."""
        self._limit = waiting
        self._waiting = 0
        self._lock = threading.Lock()
        self._queues: dict[Slot, queue.SimpleQueue[_Ticket | None]] = {
            "short": queue.SimpleQueue(),
            "long": queue.SimpleQueue(),
        }
        self._running: dict[Slot, _Ticket] = {}

    def start(self) -> None:
        """Start the slots, on daemon threads: a kernel that never ends must not keep the process from ending."""
        for slot in self._queues:
            threading.Thread(target=self._serve, args=(slot,), name=f"lane-{slot}", daemon=True).start()

    def stop(self) -> None:
        """Let the slots end after what they are doing."""
        for slot in self._queues.values():
            slot.put(None)

    async def run(self, work: Callable[[Checkpoint], Result], *, slot: Slot, deadline: float) -> Result:
        """Return what ``work(checkpoint)`` returns, run on a slot's thread.

        ``deadline`` is a time of ``time.monotonic``, which the loop's clock agrees with. Raises ``Overloaded`` when the
        queue is full, ``DeadlinePassed`` at the deadline, whether or not the work has ended, and what ``work`` raises.
        """
        ticket = _Ticket(work, deadline)
        self._enter()
        self._queues[slot].put(ticket)
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                return await asyncio.wrap_future(ticket.future)
        except TimeoutError:
            raise DeadlinePassed("expected an answer before the deadline; ask for less, or for more time") from None
        finally:
            self._leave(ticket)
            ticket.abandon()
            del ticket  # an error holds this frame, and the frame would hold the error

    def overrun_s(self) -> float:
        """Return by how many seconds the work that is running is past its deadline, 0 when none is."""
        with suppress(RuntimeError):  # a slot may change while it is looked at; the next look will see
            now = time.monotonic()
            return max((0.0, *(now - ticket.deadline for ticket in self._running.values())))
        return 0.0

    def _enter(self) -> None:
        with self._lock:
            if self._waiting >= self._limit:
                raise Overloaded(f"{self._limit} requests are waiting already; try again in a moment")
            self._waiting += 1

    def _leave(self, ticket: _Ticket) -> None:
        """Count a piece of work as waiting no more: it begins, or nobody waits for it."""
        with self._lock:
            self._waiting -= not ticket.started
            ticket.started = True

    def _serve(self, slot: Slot) -> None:
        while (ticket := self._queues[slot].get()) is not None:
            self._leave(ticket)
            self._running[slot] = ticket
            ticket.run()
            del self._running[slot]
            del ticket  # or it would keep its tensors until the next one comes
