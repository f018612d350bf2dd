"""Lines: members of groups that wait for the scheduler's thread. While a call of a group runs there, others gather."""

import asyncio
import logging
import math
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, Generic, Protocol, TypeVar

from app.autodiff.packing import Packing
from app.errors import DeadlinePassed, Overloaded, too_late
from app.execution.scheduler import Scheduler
from app.execution.tickets import Admission, Queue, Ticket
from app.runtime.cancellation import Checkpoint
from app.runtime.traces import NotTraced
from app.telemetry.accounts import Owner

# How much later than that of its first member the deadlines of the others of a call may be.
PATIENCE_S = 1.0
logger = logging.getLogger("pullback")

# A turn of the thread ends after this time, or this many batches; further ones wait for the next turn.
TURN_S, BATCHES = 2e-3, 32


class Member(Protocol):
    """An evaluation that takes ``units`` of the packing of its call.

    ``may_wait`` says whether it may wait for a thread. It holds a place of its ``owner`` there, and its call ends by
    ``latest``, a time of ``time.monotonic``. When its client leaves, ``is_done`` is set, and then ``on_release`` is
    called.
    """

    on_release: Callable[[], None] | None

    @property
    def units(self) -> int: ...  # noqa: D102
    @property
    def owner(self) -> Owner: ...  # noqa: D102
    @property
    def latest(self) -> float: ...  # noqa: D102
    @property
    def may_wait(self) -> bool: ...  # noqa: D102
    @property
    def is_done(self) -> bool: ...  # noqa: D102


AMember = TypeVar("AMember", bound=Member)


class Group(Protocol[AMember]):
    """What members that may share a call have in common; equal groups are one."""

    @property
    def packing(self) -> Packing: ...  # noqa: D102

    def batch(self, members: Sequence[AMember]) -> "Batch[AMember]":
        """Return the batch of these members."""
        ...

    def fail(self, member: AMember, error: BaseException) -> None:
        """Give a member, which is not done, an error in place of its result, on the event loop."""
        ...


@dataclass(eq=False)
class Batch(ABC, Generic[AMember]):
    """Members of a group for one TensorFlow call; it took ``seconds``, 0 if that says nothing about other calls."""

    group: Group[AMember]
    members: Sequence[AMember]
    seconds: float = field(default=0.0, init=False)

    @property
    def units(self) -> int:
        """The units of all members."""
        return sum([member.units for member in self.members])

    @abstractmethod
    def run(self) -> None:
        """Compute, on any thread; raises ``NotTraced``, and what fails all members."""

    @abstractmethod
    def finish(self) -> None:
        """Give the members their results, on the event loop; do nothing for one that is done."""


@dataclass(eq=False)
class _Turn:
    """Batches that run in one turn of the thread: those before ``done`` have run, or have ``failed``."""

    batches: Sequence[Batch[Any]]
    done: int = 0
    failed: dict[Batch[Any], BaseException] = field(default_factory=dict[Batch[Any], BaseException])
    ticket: Ticket | None = None
    timer: asyncio.TimerHandle | None = None

    @property
    def first(self) -> Member:
        """The first member, which is whose turn it is."""
        return self.batches[0].members[0]

    @property
    def members(self) -> Iterable[Member]:
        """The members of all batches."""
        return chain.from_iterable(batch.members for batch in self.batches)

    def work(self, checkpoint: Checkpoint) -> None:
        """Run the batches, at least one, while there is time; raises ``NotTraced``, and what ``checkpoint`` raises."""
        until = time.perf_counter() + TURN_S
        while self.done < len(self.batches):
            checkpoint()
            batch = self.batches[self.done]
            if not all(member.is_done for member in batch.members):
                try:
                    batch.run()
                except NotTraced:
                    raise
                except BaseException as error:  # noqa: BLE001 - it goes to the members
                    self.failed[batch] = error
            self.done += 1
            if time.perf_counter() > until:
                return


@dataclass(eq=False)
class _Line:
    """The members of a group that wait for the thread, and the turn that has taken others."""

    group: Group[Any]
    waiting: deque[Any] = field(default_factory=deque[Any])
    turn: _Turn | None = None

    def take(self) -> _Turn:
        """Take the members of the next turn: those of one call, or one call for each where they cannot share any."""
        most, batches = self.group.packing.most, list[Batch[Any]]()
        while self.waiting and len(batches) < (BATCHES if most == 1 else 1):
            # A member with an early deadline does not end the call of others.
            until = self.waiting[0].latest + PATIENCE_S
            batches.append(self.group.batch(fitting(self.waiting, most, until)))
        return _Turn(batches)


class Lines:
    """The lines of a process; everything but the batches runs on the event loop."""

    def __init__(self, scheduler: Scheduler, places: int, note: Callable[[Packing, int, float], None]) -> None:
        """Start with none. ``note`` gets the packing, the units and the seconds of each call."""
        self._scheduler, self._admission, self._note = scheduler, Admission(places), note
        self._lines: dict[Group[Any], _Line] = {}

    @property
    def taken(self) -> int:
        """The number of places that are taken."""
        return self._admission.taken

    def put(self, group: Group[Any], members: Iterable[Any]) -> None:
        """Let members wait for the thread, as far as there are places."""
        if (line := self._lines.get(group)) is None:
            line = self._lines[group] = _Line(group)
            self._begin_soon(line)
        for member in members:
            try:
                if not member.may_wait:
                    raise too_late()
                self._admission.take(member.owner)
            except (Overloaded, DeadlinePassed) as error:
                group.fail(member, error)
            else:
                member.on_release = partial(self._release, line, member)
                line.waiting.append(member)

    def _begin_soon(self, line: _Line) -> None:
        """Begin the next turn in two iterations of the event loop, which read the requests that have arrived."""
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, self._begin, line)

    def _begin(self, line: _Line) -> None:
        """Begin the next turn of a line; drop a line without members."""
        if not line.waiting:
            del self._lines[line.group]
            return
        turn = line.turn = line.take()
        try:
            self._submit(line, turn, "short")
        except Overloaded as error:
            del self._lines[line.group]
            self._end(line, [*turn.members, *line.waiting], error)
        else:
            left_s = turn.first.latest - time.monotonic()
            turn.timer = asyncio.get_running_loop().call_later(left_s, self._finish, line, turn)

    def _submit(self, line: _Line, turn: _Turn, queue: Queue) -> None:
        """Queue a turn for the thread; raises ``Overloaded``."""
        loop, first = asyncio.get_running_loop(), turn.first
        turn.ticket = self._scheduler.submit(turn.work, queue=queue, deadline=first.latest, owner=first.owner)

        def on_end(_: object) -> None:
            with suppress(RuntimeError):  # the loop has been closed
                loop.call_soon_threadsafe(self._finish, line, turn)

        turn.ticket.future.add_done_callback(on_end)

    def _finish(self, line: _Line, turn: _Turn) -> None:
        """End a turn that has run, is late, or runs for nobody: answer its members, and begin the next."""
        ticket = turn.ticket
        if line.turn is not turn or ticket is None:
            return  # it has been finished already
        if not ticket.future.done():
            self._scheduler.abandon(ticket)
        failure = ticket.future.exception() if ticket.future.done() else too_late()
        if isinstance(failure, NotTraced):
            try:
                self._submit(line, turn, "compile")
            except Overloaded as error:
                failure = error
            else:
                return
        if turn.timer is not None:
            turn.timer.cancel()
        turn.ticket = turn.timer = None  # they refer to the turn: a cycle would keep its tensors
        taken, done, rest = [*turn.members], turn.batches[: turn.done], turn.batches[turn.done :]
        if failure is None:
            line.waiting.extendleft(member for batch in reversed(rest) for member in reversed(batch.members))
            taken = [member for batch in done for member in batch.members]
        try:
            self._give_results(turn, done)
        except Exception:
            logger.exception("evaluations have no results")
        line.turn = None
        self._end(line, taken, failure or too_late())
        self._begin_soon(line)

    def _give_results(self, turn: _Turn, batches: Iterable[Batch[Any]]) -> None:
        for batch in batches:
            if batch in turn.failed:
                fail(batch.group, batch.members, turn.failed[batch])
                continue
            if batch.seconds:
                self._note(batch.group.packing, batch.units, batch.seconds)
            batch.finish()

    def _end(self, line: _Line, members: Iterable[Any], error: BaseException) -> None:
        """Give back the places of members, and an error to those without a result."""
        for member in members:
            self._admission.give(member.owner)
            member.on_release = None
        fail(line.group, members, error)

    def _release(self, line: _Line, member: Any) -> None:
        """Drop a member whose client has left; end its turn if the clients of all other members have left too."""
        if member in line.waiting:
            line.waiting.remove(member)
            self._admission.give(member.owner)
            member.on_release = None
        elif line.turn is not None and all(each.is_done for each in line.turn.members):
            self._finish(line, line.turn)


def fitting(members: deque[Any], units: int, until: float = math.inf) -> list[Any]:
    """Remove and return the first members with so many units together, whose calls end by ``until``."""
    found = list[Any]()
    while members and members[0].units <= units and members[0].latest <= until:
        found.append(members.popleft())
        units -= found[-1].units
    return found


def fail(group: Group[Any], members: Iterable[Any], error: BaseException) -> None:
    """Give an error to the members that are not done."""
    for member in members:
        if not member.is_done:
            group.fail(member, error)
