"""The fast path: answers requests that differ from earlier ones only in their numbers.

It only replays the general path, from templates of what that has read, computed and written (``candidates``). Whatever
has no template, or cannot be answered now, takes the general path from its first byte. The general path reports all
errors.

*What it answers*: a request that begins on an idle connection, is whole, and has a known prefix (the bytes before the
body, without the digits of ``Content-Length``) and a body with a template. Requests of one turn of the event loop whose
evaluations may share a call are computed together, on the event loop.

*What it does not answer*: any request while the service drains or the budget of bodies is used up; a request without a
valid key, over the limit of its key, or with a header that sets its deadline or its id; a call that no run has shown to
be brief, or whose trace the cache has dropped; numbers that overflow; results that need another layout.

*What it drops*: the least recently used prefixes, and the oldest templates of a prefix. A template stays true: ops,
settings and plans do not change while the process lives. What does change is looked up each time: keys, the budget, the
state of the service, traces, and which calls run inline.
"""

import asyncio
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from app.autodiff.padding import LENGTHS, SHARED, length_for
from app.errors import PullbackError
from app.execution.engine import Engine
from app.fast_path.arrivals import Arrival, Arrivals
from app.fast_path.cache import TemplateCache
from app.fast_path.candidates import Candidate
from app.fast_path.pending import Batch, PartialRequest, PendingRequest
from app.fast_path.prefixes import Unknown, cut, parse_prefix
from app.fast_path.shared_calls import SharedCall
from app.fast_path.template_maker import TemplateMaker
from app.http.access_log import CLIENT_GONE, AccessLog
from app.http.body import Budget
from app.http.connection import Connection
from app.http.keys import Keys

logger = logging.getLogger("pullback")

# How long the rest of a request with a known prefix may take. Then the general path waits for it.
PATIENCE_S = 0.05


class FastPath:
    """The fast path of a process; everything in it runs on the event loop."""

    def __init__(self, engine: Engine, budget: Budget, log: AccessLog, keys: Keys | None) -> None:
        """Start without templates. ``answered`` counts the requests."""
        self.answered = 0
        self._batches, self._lifecycle = engine.batches, engine.lifecycle
        self._budget, self._log, self._keys, self._cache = budget, log, keys, TemplateCache()
        self._arrivals = Arrivals()
        self._parts = dict[Connection, PartialRequest]()
        self._is_scheduled = self._is_sweeping = False
        self.store = TemplateMaker(engine, self._cache).store

    def receive(self, connection: Connection, data: bytes) -> bytes:
        """Take the data of a connection that is idle, or waits here; return what it does not take.

        A request that it takes is answered in one of the next turns of the event loop (``Connection.answer``), or
        returned to the parser (``Connection.parse``).
        """
        part = None
        if connection.is_waiting:
            part = self._parts.get(connection)
            data = self.release(connection) + data
            if not connection.is_idle:
                return data
        found = None if self._lifecycle.draining else cut(data)
        if found is None:
            return data
        key, start, end = found
        prefix = self._cache.find(key)
        if prefix is None:
            if not self._cache.has(key) and self._cache.is_due(key):
                self._cache.add(key, parse_prefix(key))
            return data
        if end - start > self._budget.free:
            return data
        if len(data) < end:
            # The patience begins with the first part.
            since = time.monotonic() if part is None else part.since
            self._put_aside(connection, PartialRequest(data, end - start, since))
        else:
            self._arrive(Arrival(connection, data, data[start:], key, prefix, time.perf_counter()))
        return b""

    def release(self, connection: Connection) -> bytes:
        """Let go of the request of a connection, or of the part of one; return its data."""
        part = self._parts.pop(connection, None)
        if part is not None:
            connection.is_waiting = False
            self._budget.free += part.size
            return part.data
        arrival = self._arrivals.pop(connection)
        if arrival is None:
            return b""
        self._let_go(arrival)
        return arrival.data

    def _arrive(self, arrival: Arrival) -> None:
        """Let a whole request wait for its turn."""
        connection = arrival.connection
        self._budget.free -= len(arrival.body)
        self._lifecycle.in_flight += 1
        connection.is_waiting = True
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

    def _let_go(self, arrival: Arrival) -> None:
        """Release what a request holds; the fast path will not answer it."""
        arrival.connection.is_waiting = False
        self._budget.free += len(arrival.body)
        self._lifecycle.in_flight -= 1

    def _run(self) -> None:
        """Answer the requests of this turn."""
        self._is_scheduled = False
        waiting = dict[SharedCall, Batch]()
        try:
            for arrival in self._arrivals.turn():
                if (request := self._read(arrival)) is None:
                    self._let_go(arrival)
                    arrival.connection.parse(arrival.data)
                else:
                    template = request.template
                    waiting.setdefault(template.call, {}).setdefault(template, []).append(request)
        finally:
            for call, groups in waiting.items():
                self._answer_all(call, groups)
            if self._arrivals:
                self._schedule()

    def _read(self, arrival: Arrival) -> PendingRequest | None:
        """Return a request with the numbers of its body, ``None`` if the general path must answer it."""
        connection, prefix, body, began = arrival.connection, arrival.prefix, arrival.body, time.perf_counter()
        if self._lifecycle.draining:
            return None
        try:
            found = prefix.find(body)
        except Exception:
            logger.exception("the fast path cannot read a request, and leaves it to the general path")
            return None
        if isinstance(found, Unknown):
            likeness = arrival.key, found.likeness
            if self._cache.is_due(likeness):
                connection.candidate = Candidate(arrival.key, body, likeness)
            return None
        template, columns = found
        if columns is None:
            return None
        name = ""
        if self._keys is not None:
            try:
                name = self._keys.name_of(prefix.authorization)
                self._keys.enter(name)
            except PullbackError:
                return None
        parsed = time.perf_counter()
        client, size, read_s = connection.client, len(body), parsed - began
        return PendingRequest(
            connection,
            arrival.data,
            template,
            columns,
            prefix.target,
            client,
            size,
            name,
            arrival.began,
            parsed,
            read_s,
        )

    def _put_aside(self, connection: Connection, part: PartialRequest) -> None:
        self._budget.free -= part.size
        connection.is_waiting = True
        self._parts[connection] = part
        if not self._is_sweeping:
            self._is_sweeping = True
            connection.loop.call_later(PATIENCE_S, self._sweep, connection.loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """Leave slow requests to the general path."""
        until = time.monotonic() - PATIENCE_S
        for connection in [connection for connection, part in self._parts.items() if part.since <= until]:
            connection.parse(self.release(connection))
        self._is_sweeping = bool(self._parts)
        if self._is_sweeping:
            loop.call_later(PATIENCE_S, self._sweep, loop)

    def _answer_all(self, call: SharedCall, groups: Batch) -> None:
        """Answer the requests of a turn that may share a call."""
        requests = list(chain.from_iterable(groups.values()))
        for request in requests:
            self._budget.free += request.received
            self._lifecycle.in_flight -= 1
            if self._keys is not None:
                self._keys.leave(request.key)
        try:
            for batch, count in self._batches_of(call, groups):
                self._answer(call, batch, count)
        except Exception:
            logger.exception("the fast path failed, and leaves its requests to the general path")
            self._return([request for request in requests if not request.is_done])

    def _batches_of(self, call: SharedCall, groups: Batch) -> Iterator[tuple[Batch, int]]:
        """Yield batches of a length that is known to run inline, each with its count of numbers; return the others.

        If the best length is not known to run inline, the requests that fill it take the general path, which times it.
        """
        total = 0
        for template, requests in groups.items():
            total += template.size * len(requests)
        best = length_for(min(total, SHARED))
        runs_inline = self._batches.runs_inline(call.program, call.spec, best)
        if runs_inline and total <= SHARED:
            yield groups, total
            return
        lengths = [each for each in LENGTHS if self._batches.runs_inline(call.program, call.spec, each)]
        for template, requests in groups.items():
            left = requests
            if not runs_inline:
                self._return(left[: best // template.size])
                left = left[best // template.size :]
            if not lengths or template.size > lengths[-1]:
                self._return(left)
                continue
            most = lengths[-1] // template.size
            for first in range(0, len(left), most):
                part = left[first : first + most]
                yield {template: part}, template.size * len(part)

    def _answer(self, call: SharedCall, batch: Batch, count: int) -> None:
        """Compute the ``count`` numbers of a batch together, and answer its requests."""
        began, requests = time.perf_counter(), list(chain.from_iterable(batch.values()))
        try:
            results = call.run(list(zip(*[request.columns for request in requests], strict=True)), count)
        except Exception:  # noqa: BLE001 - the general path reports the error
            self._return(requests)
            return
        computed, start = time.perf_counter(), 0
        first = requests[0]
        first.template.counters.batched([request.parsed for request in requests], began, computed)
        date = first.connection.server_state.default_headers[0][1]
        for template, alike in batch.items():
            response = template.response
            bodies = response.bodies(results, start, len(alike), template.size)
            start += len(alike) * template.size
            for request, body in zip(alike, bodies, strict=True):
                if body is None:
                    self._return([request])
                else:
                    self._respond(request, response.head, date, body)
            self._log.answered([request for request in alike if request.id], template.counters)
        first.template.parse_counters.spent("parse", sum([request.read_s for request in requests]))
        first.template.counters.spent("serialise", time.perf_counter() - computed)

    def _respond(self, request: PendingRequest, head: Sequence[bytes], date: bytes, body: bytes) -> None:
        """Send a response with this head and body."""
        start, before_length, before_id, end = head
        request.is_done, connection = True, request.connection
        request.id, request.sent = self._log.next_id(), len(body)
        connection.answer(
            b"%b%b%b%d%b%b%b%b" % (start, date, before_length, len(body), before_id, request.id, end, body)
        )
        if connection.link.is_lost:
            request.status = CLIENT_GONE
        self.answered += 1

    def _return(self, requests: Iterable[PendingRequest]) -> None:
        """Leave these requests to the general path."""
        for request in requests:
            request.is_done, request.connection.is_waiting = True, False
            request.connection.parse(request.data)
