"""Work in the queues of the scheduler, and how late it is."""

import math
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar

from app.errors import DeadlinePassed, Overloaded
from app.runtime.cancellation import Checkpoint, Interruptible
from app.runtime.trace_entry import LATE_S
from app.runtime.traces import traces_of
from app.telemetry.accounts import NOT_CHARGED, Account, Owner
from app.telemetry.counters import Counters
from app.telemetry.stage_times import CURRENT, StageTimes

Queue = Literal["short", "long", "check", "compile", "catalogue", "json"]
# A kernel cannot be interrupted; one that is so long past its deadline counts as stuck.
STUCK_S = 5.0
Item = TypeVar("Item")


class Overrun(NamedTuple):
    """Work that runs past its deadline, by so many seconds, and its owner."""

    seconds: float
    owner: Owner

    @property
    def refusal(self) -> Overloaded:
        """The error for work that cannot run because this one is stuck."""
        return Overloaded(f"stuck: op {self.owner} is {self.seconds:.0f} s past its deadline", retry_after_s=5)


@dataclass(eq=False)
class Ticket:
    """A piece of an op's work in a queue, the ``future`` of its result, and whether its caller still waits.

    ``queued`` is a time of ``time.perf_counter``, ``began`` one of ``time.monotonic``. ``times`` are those of the
    request, if it is traced.
    """

    work: Callable[[Checkpoint], Any]
    queue: Queue
    deadline: float
    owner: Owner
    counters: Counters
    account: Account = NOT_CHARGED
    future: Future[Any] = field(default_factory=Future[Any])
    queued: float = field(default_factory=time.perf_counter)
    takes_place: bool = False
    abandoned: bool = False
    began: float = math.inf
    running: Interruptible | None = None
    times: StageTimes | None = None

    @property
    def is_late_trace(self) -> bool:
        """Whether it traces or compiles long past its deadline; it may go on in the background, or never end."""
        return self.running is not None and self.running.is_uninterrupted and self.late_s > LATE_S

    @property
    def late_s(self) -> float:
        """How many seconds its deadline is past."""
        return time.monotonic() - self.deadline

    @property
    def overrun(self) -> Overrun | None:
        """How far it runs past its deadline, ``None`` if it does not. A trace does not: it holds no other work."""
        block = self.running
        if block is None or block.is_uninterrupted:
            return None
        # What follows a late trace is late from its end.
        late = time.monotonic() - max(self.deadline, block.since)
        return Overrun(late, self.owner) if late > 0 else None

    def check(self) -> None:
        """Raise ``DeadlinePassed`` when no caller waits; long work calls this between its chunks."""
        if self.abandoned or time.monotonic() > self.deadline:
            raise DeadlinePassed("the work was abandoned: its deadline passed, or its client disconnected")

    def run(self) -> None:
        """Do and count the work, unless it was abandoned in the queue."""
        if not self.future.set_running_or_notify_cancel():
            return
        of_thread = CURRENT.set(self.times)
        try:
            with Interruptible(self.deadline) as self.running, traces_of(str(self.owner)):
                self.check()
                self.counters.spent("queue", self.queued, time.perf_counter(), self.account)
                self.future.set_result(self.counters.computed(self.work, self.check, account=self.account))
        except BaseException as error:  # noqa: BLE001 - it goes to the caller
            self.future.set_exception(error)
        finally:
            CURRENT.reset(of_thread)


class RoundRobin(dict[Owner, deque[Item]]):
    """A queue that serves its owners in turn, and the items of each owner in order.

    It has the items of each owner that has any, in the order of turns; so it is false when it is empty.
    """

    def put(self, owner: Owner, item: Item) -> None:
        """Queue an item; an owner without other items gets the last turn."""
        self.setdefault(owner, deque()).append(item)

    def take(self, owner: Owner) -> Item:
        """Remove and return the first item of an owner, who then gets the last turn."""
        queue = self.pop(owner)
        item = queue.popleft()
        if queue:
            self[owner] = queue
        return item

    def remove(self, owner: Owner, item: Item) -> bool:
        """Remove an item from any position; return whether it was still queued."""
        queue = self.get(owner, ())
        if item not in queue:
            return False
        self[owner].remove(item)
        if not queue:
            del self[owner]
        return True


class Admission:
    """The places of a queue.

    An owner without a place may take one while any is free. An owner may take a further place while it holds fewer
    places than are free, and only beyond ``spare``: as many places stay free as there are fewer owners than ``spare``.
    So

    - a single owner fills half of the places, and owners that share a full queue for long have about as many each;
    - while fewer than ``spare`` owners have places, one that has none gets one: ``spare`` is an eighth of the places.

    A fixed half for each would let two owners shut out all others; a fixed share for each would leave most places
    empty. With more owners than places, no rule has a place for every new one.
    """

    def __init__(self, count: int) -> None:
        """Start with ``count`` places, all free."""
        self._free, self._count = count, count
        self.spare = min(count, max(2, count // 8))
        self._held: dict[Owner, int] = {}

    @property
    def taken(self) -> int:
        """The number of places that are taken."""
        return self._count - self._free

    def take(self, owner: Owner) -> None:
        """Take a place; raises ``Overloaded`` if the owner may not."""
        own, reserved = self._held.get(owner, 0), self.spare - len(self._held)
        if self._free <= (max(own, reserved) if own else 0):
            others = self.taken - own
            raise Overloaded(f"queue full: {own} waiting for {owner}, {others} for others; try again soon")
        self._held[owner] = own + 1
        self._free -= 1

    def give(self, owner: Owner) -> None:
        """Return a place."""
        self._held[owner] -= 1
        self._free += 1
        if not self._held[owner]:
            del self._held[owner]
