"""The express way: one look at a request decides whether it is like an earlier one but for its numbers.

It decides nothing by itself. The ordinary way teaches it heads and frames (``memory``, ``lessons``), and whatever it
has not learned, or cannot answer now, goes through the ordinary way from its first byte: every error does.

*What it takes*: a request that begins on an idle connection, is whole, and has a learned head (the bytes before the
body, without the digits of ``Content-Length``) and a learned body (its bytes, without the numbers). Requests of one
turn of the event loop whose evaluations may share a call are computed together, on the event loop.

*What it leaves to the ordinary way*: every request while the service drains or the budget of bodies is used up; a
request without a valid key, over the limit of its key, or with a header that sets its deadline or its id; a call that
no run has shown to be brief, or whose trace the cache has dropped; numbers that overflow; results such as NaN, for
which JSON has no number.

*What it forgets*: the heads that were not used for the longest time, and the oldest frames of a head. What it has
learned stays true: ops, settings and plans do not change while the process lives. What does change is looked up each
time: keys, the budget, the state of the service, traces, and which calls are brief.
"""

import asyncio
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from app.autodiff.evaluation import present
from app.autodiff.padding import LENGTHS, SHARED, length_for
from app.errors import PullbackError
from app.execution.engine import Engine
from app.express.arrivals import Arrival, Arrivals
from app.express.calls import Call
from app.express.frames import write
from app.express.heads import Unknown, cut_off, read_head
from app.express.learner import Learner
from app.express.lessons import Lesson
from app.express.members import Batch, Member, Part
from app.express.memory import Memory
from app.http.access_log import CLIENT_GONE, AccessLog
from app.http.body import Budget
from app.http.connection import Connection
from app.http.keys import Keys

logger = logging.getLogger("pullback")

# How long the rest of a request with a learned head may take. Then the ordinary way waits for it.
PATIENCE_S = 0.05


class Express:
    """The express way of a process. Everything but the lessons (``learn``) runs on the event loop."""

    def __init__(self, engine: Engine, budget: Budget, log: AccessLog, keys: Keys | None) -> None:
        """Start without anything learned. ``answered`` counts the requests."""
        self.answered = 0
        self._batches, self._lifecycle = engine.batches, engine.lifecycle
        self._budget, self._log, self._keys, self._memory = budget, log, keys, Memory()
        self._arrivals = Arrivals()
        self._parts = dict[Connection, Part]()
        self._is_scheduled = self._is_sweeping = False
        self.learn = Learner(engine, self._memory).learn

    def receive(self, connection: Connection, data: bytes) -> bytes:
        """Take the data of a connection that is idle, or with the express way; return what it does not take.

        A request that it takes is answered in one of the next turns of the event loop (``Connection.answer``), or given
        back (``Connection.parse``).
        """
        part = None
        if connection.is_with_express:
            part = self._parts.get(connection)
            data = self.give_back(connection) + data
            if not connection.is_idle:
                return data
        cut = None if self._lifecycle.draining else cut_off(data)
        if cut is None:
            return data
        key, start, end = cut
        head = self._memory.find(key)
        if head is None:
            if not self._memory.knows(key) and self._memory.is_familiar(key):
                self._memory.add(key, read_head(key))
            return data
        if end - start > self._budget.free:
            return data
        if len(data) < end:
            # The patience begins with the first part.
            since = time.monotonic() if part is None else part.since
            self._put_aside(connection, Part(data, end - start, since))
        else:
            self._arrive(Arrival(connection, data, data[start:], key, head, time.perf_counter()))
        return b""

    def give_back(self, connection: Connection) -> bytes:
        """Let go of the request of a connection, or of the part of one; return its data."""
        part = self._parts.pop(connection, None)
        if part is not None:
            connection.is_with_express = False
            self._budget.free += part.size
            return part.data
        arrival = self._arrivals.pop(connection)
        if arrival is None:
            return b""
        self._release(arrival)
        return arrival.data

    def _arrive(self, arrival: Arrival) -> None:
        """Let a whole request wait for its turn."""
        connection = arrival.connection
        self._budget.free -= len(arrival.body)
        self._lifecycle.in_flight += 1
        connection.is_with_express = True
        self._arrivals.put(arrival)
        if len(connection.connections) == 1:
            # Nothing else can arrive in this turn.
            self._run()
        else:
            self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _release(self, arrival: Arrival) -> None:
        """Let go of a request, which the ordinary way or nobody answers."""
        arrival.connection.is_with_express = False
        self._budget.free += len(arrival.body)
        self._lifecycle.in_flight -= 1

    def _run(self) -> None:
        """Answer the requests of this turn."""
        self._is_scheduled = False
        waiting = dict[Call, Batch]()
        try:
            for arrival in self._arrivals.turn():
                if (member := self._read(arrival)) is None:
                    self._release(arrival)
                    arrival.connection.parse(arrival.data)
                else:
                    frame = member.frame
                    waiting.setdefault(frame.call, {}).setdefault(frame, []).append(member)
        finally:
            for call, groups in waiting.items():
                self._answer_all(call, groups)
            if self._arrivals:
                self._schedule()

    def _read(self, arrival: Arrival) -> Member | None:
        """Return a request with the numbers of its body, ``None`` if the ordinary way must answer it."""
        connection, head, body, began = arrival.connection, arrival.head, arrival.body, time.perf_counter()
        if self._lifecycle.draining:
            return None
        try:
            found = head.find(body)
        except Exception:
            logger.exception("the express way cannot read a request, and leaves it to the ordinary one")
            return None
        if isinstance(found, Unknown):
            likeness = arrival.key, found.likeness
            if self._memory.is_familiar(likeness):
                connection.lesson = Lesson(arrival.key, body, likeness)
            return None
        frame, columns = found
        if columns is None:
            return None
        name = ""
        if self._keys is not None:
            try:
                name = self._keys.name_of(head.authorization)
                self._keys.enter(name)
            except PullbackError:
                return None
        parsed = time.perf_counter()
        client, size, read_s = connection.client, len(body), parsed - began
        return Member(
            connection, arrival.data, frame, columns, head.target, client, size, name, arrival.began, parsed, read_s
        )

    def _put_aside(self, connection: Connection, part: Part) -> None:
        self._budget.free -= part.size
        connection.is_with_express = True
        self._parts[connection] = part
        if not self._is_sweeping:
            self._is_sweeping = True
            connection.loop.call_later(PATIENCE_S, self._sweep, connection.loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """Give the parts of slow requests to the ordinary way."""
        until = time.monotonic() - PATIENCE_S
        for connection in [connection for connection, part in self._parts.items() if part.since <= until]:
            connection.parse(self.give_back(connection))
        self._is_sweeping = bool(self._parts)
        if self._is_sweeping:
            loop.call_later(PATIENCE_S, self._sweep, loop)

    def _answer_all(self, call: Call, groups: Batch) -> None:
        """Answer the members of a turn that may share a call."""
        members = list(chain.from_iterable(groups.values()))
        for member in members:
            self._budget.free += member.received
            self._lifecycle.in_flight -= 1
            if self._keys is not None:
                self._keys.leave(member.key)
        try:
            for batch, count in self._batches_of(call, groups):
                self._answer(call, batch, count)
        except Exception:
            logger.exception("the express way failed, and leaves its requests to the ordinary one")
            self._return([member for member in members if not member.is_done])

    def _batches_of(self, call: Call, groups: Batch) -> Iterator[tuple[Batch, int]]:
        """Yield batches of a length that is known to be brief, each with its count of numbers; return the others.

        If the best length is not known to be brief, the members that fill it go the ordinary way, which measures it.
        """
        total = 0
        for frame, members in groups.items():
            total += frame.size * len(members)
        best = length_for(min(total, SHARED))
        runs_inline = self._batches.runs_inline_together(call.program, call.spec, best)
        if runs_inline and total <= SHARED:
            yield groups, total
            return
        lengths = [each for each in LENGTHS if self._batches.runs_inline_together(call.program, call.spec, each)]
        for frame, members in groups.items():
            left = members
            if not runs_inline:
                self._return(left[: best // frame.size])
                left = left[best // frame.size :]
            if not lengths or frame.size > lengths[-1]:
                self._return(left)
                continue
            most = lengths[-1] // frame.size
            for first in range(0, len(left), most):
                part = left[first : first + most]
                yield {frame: part}, frame.size * len(part)

    def _answer(self, call: Call, batch: Batch, count: int) -> None:
        """Compute the ``count`` numbers of a batch together, and answer its members."""
        began, members = time.perf_counter(), list(chain.from_iterable(batch.values()))
        try:
            results = call.run(list(zip(*[member.columns for member in members], strict=True)), count)
        except Exception:  # noqa: BLE001 - the ordinary way tells whose fault it is
            self._return(members)
            return
        computed, end = time.perf_counter(), 0
        first = members[0]
        first.frame.counters.batched([member.parsed for member in members], began, computed)
        date = first.connection.server_state.default_headers[0][1]
        for frame, alike in batch.items():
            start, end = end, end + len(alike) * frame.size
            response = frame.response
            texts = [
                write(present(results[hole.key])[start:end].reshape(len(alike), -1), hole) for hole in response.holes
            ]
            for member, numbers in zip(alike, zip(*texts, strict=True), strict=True):
                if (body := response.body(numbers)) is None:
                    self._return([member])
                else:
                    self._respond(member, response.head, date, body)
            self._log.answered([member for member in alike if member.id], frame.counters)
        first.frame.parse_counters.spent("parse", sum([member.read_s for member in members]))
        first.frame.counters.spent("serialise", time.perf_counter() - computed)

    def _respond(self, member: Member, head: Sequence[bytes], date: bytes, body: bytes) -> None:
        """Send a response with this head and body."""
        start, before_length, before_id, end = head
        member.is_done, connection = True, member.connection
        member.id, member.sent = self._log.next_id(), len(body)
        connection.answer(
            b"%b%b%b%d%b%b%b%b" % (start, date, before_length, len(body), before_id, member.id, end, body)
        )
        if connection.link.is_lost:
            member.status = CLIENT_GONE
        self.answered += 1

    def _return(self, members: Iterable[Member]) -> None:
        """Let the ordinary way answer these members."""
        for member in members:
            member.is_done, member.connection.is_with_express = True, False
            member.connection.parse(member.data)
