"""The fast path: answers requests that differ from earlier ones only in their numbers.

It only replays the general path, from templates of what that has read, computed and written (``candidates``). Whatever
has no template, or cannot be answered now, takes the general path. The general path reports all errors.

*What it answers*: a request that begins while its connection answers no other, and whose head (target and headers,
without those that vary, such as ``traceparent``) and body have a template. ``app.execution.batching`` decides which
requests share a call, and where it runs.

*What it does not answer*: any request while the service drains or the budget of bodies is used up; one in chunks, or
that waits for an interim response; one for a posted graph that is gone; one without a valid key, or over the limit of
its key; values that the op refuses, or takes long to check; numbers that overflow; results that need another layout;
requests beyond the limit of the scheduler's queue, and those with a deadline of their own that would wait there.

*What it drops*: the least recently used heads and templates. A template stays true: ops, settings and plans do not
change while the process lives. What does change is looked up each time: keys, the budget, the state of the service,
traces, and which calls run inline.
"""

import asyncio
import logging
import time
from collections.abc import Iterable
from itertools import chain

from app.autodiff.packing import Whole
from app.errors import Unprocessable
from app.execution.engine import Engine
from app.fast_path.cache import TemplateCache, Unknown, size_of
from app.fast_path.candidates import Candidate, TemplateMaker
from app.fast_path.pending import Pending, PendingRequest
from app.fast_path.template_batches import TemplateBatch, TemplateGroup
from app.fast_path.templates import Template
from app.http.access_log import CLIENT_GONE, AccessLog
from app.http.body import Budget
from app.http.connection import Connection
from app.http.deadlines import seconds_of
from app.http.keys import Keys
from app.http.request import REQUEST_ID
from app.telemetry.accounts import Share
from app.telemetry.stage_times import StageTimes

logger = logging.getLogger("pullback")

# What ``time.monotonic`` is ahead of ``time.perf_counter``; on Linux they are one clock.
CLOCK_S = time.monotonic() - time.perf_counter()


class FastPath:
    """The fast path of a process; everything in it runs on the event loop."""

    def __init__(self, engine: Engine, budget: Budget, log: AccessLog, keys: Keys | None) -> None:
        """Start without templates. ``answered`` counts the requests."""
        self.answered = 0
        self._batches, self._lifecycle = engine.batches, engine.lifecycle
        self._budget, self._log, self._keys, self._cache = budget, log, keys, TemplateCache()
        self._pending = Pending(budget, engine.lifecycle, keys)
        self._deadline_s, self._is_scheduled = engine.deadline_s, False
        self._store = TemplateMaker(engine, self._cache).store
        engine.after_reading.append(self._cache.drop_gone)

    def begin(self, connection: Connection) -> PendingRequest | None:
        """Return the request whose headers a connection has just parsed, if it may have a template."""
        if self._lifecycle.draining or connection.parser.get_method() != b"POST":
            return None
        varying = connection.varying
        size = size_of(varying)
        if not 0 < size <= self._budget.free or b"expect" in varying:
            return None
        head = self._cache.head((connection.url, connection.version, *connection.headers))
        if head is None:
            return None
        latest = connection.began + CLOCK_S + self._deadline_s
        request = PendingRequest(connection, head, connection.client, size, connection.began, latest)
        if self._keys is not None:
            request.authorization = varying.get(b"authorization", b"")
        if (client_id := varying.get(b"x-request-id")) is not None and REQUEST_ID.fullmatch(client_id):
            request.id = client_id
        if (milliseconds := varying.get(b"pullback-deadline-ms")) is not None:
            try:
                allowed_s = seconds_of(milliseconds)
            except Unprocessable:
                return None
            # The call of others must not end with it.
            request.may_wait = allowed_s >= self._deadline_s
            request.latest = min(request.latest, request.began + CLOCK_S + allowed_s)
        self._pending.begin(request)
        return request

    def offer(self, request: PendingRequest, now: float) -> None:
        """Take a request, of which more has arrived now; it is answered, or released, in one of the next turns."""
        if len(request.body) < request.received:
            # The time that it may wait begins with its first byte.
            self._pending.put_aside(request)
        elif now + CLOCK_S >= request.latest:
            self.leave(request)
        else:
            request.arrived = now
            self._pending.put(request)
            if len(request.connection.connections) == 1:
                # Nothing else can arrive in this turn.
                self._run()
            else:
                self._schedule()

    def end(self, request: PendingRequest) -> None:
        """Forget a request, which takes the general path."""
        self._pending.give_up(request)
        if request.on_release is not None:
            request.on_release()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        """Read the requests of this turn, and let those that can be answered share calls."""
        self._is_scheduled = False
        try:
            for request in self._pending.turn():
                if self._read(request):
                    call = request.template.call
                    group = TemplateGroup(call, request.shared, request.owner, self)
                    self._batches.put(group, request)
                else:
                    self.leave(request)
        finally:
            if self._pending.small or self._pending.large:
                self._schedule()
        self._batches.begin()

    def _read(self, request: PendingRequest) -> bool:
        """Read the numbers of a request; return whether that worked. If not, the general path must answer it."""
        began = time.perf_counter()
        if self._lifecycle.draining:
            return False
        try:
            found = self._cache.find(request.head, request.body)
        except Exception:
            logger.exception("the fast path cannot read a request, and leaves it to the general path")
            return False
        if isinstance(found, Unknown):
            likeness = request.head, found.likeness
            if self._cache.is_due(likeness):
                request.candidate = Candidate(request.head, request.body, likeness, self._store)
            return False
        request.template, columns = found
        if columns is None or not request.template.has_op:
            # A graph of the same name may be posted again.
            self._cache.drop_gone()
            return False
        try:
            if request.template.is_checked:
                columns = request.template.checked(columns)
                request.shared = request.template.shared(columns)
            request.columns = columns
            request.units, request.owner = request.template.size, request.template.call.owner
            if self._keys is not None:
                grant = self._keys.grant_of(request.authorization)
                # All templates are of calls: checks and graphs have none.
                request.account = self._keys.enter(grant, "call")
                request.key, request.grant = grant.name, grant
                if isinstance(request.template.call.packing, Whole):
                    request.owner = request.owner._replace(key=grant.name)
        except BaseException:  # noqa: BLE001 - the author of the op may raise anything; the general path reports it
            return False
        request.read_s = time.perf_counter() - began
        return True

    def send(self, batch: TemplateBatch) -> None:
        """Send the responses of a batch that has been computed, and count them."""
        try:
            if self._lifecycle.draining:
                # Its responses have another header.
                self._return_all(batch.members)
                return
            began, read_s = time.perf_counter(), 0.0
            arrivals: list[float] = []
            shares: list[Share] = []
            for requests in batch.by_template.values():
                for request in requests:
                    # What came before the call was waiting, but for the reading.
                    arrivals.append(request.arrived + request.read_s)
                    read_s += request.read_s
                    if self._keys is not None:
                        shares.append((request.account, request.units))
            first = next(iter(batch.by_template))
            first.counters.batched(arrivals, batch.began, batch.computed, self._traced(batch), shares)
            for (template, alike), bodies in zip(batch.by_template.items(), batch.bodies, strict=True):
                self._respond(template, alike, bodies)
            first.parse_counters.seconds["parse"] += read_s
            written_s = batch.ended - batch.computed + time.perf_counter() - began
            first.counters.seconds["serialise"] += written_s
        except Exception:
            logger.exception("the fast path failed, and leaves its requests to the general path")
            self._return_all(batch.members)

    def _traced(self, batch: TemplateBatch) -> list[StageTimes | None]:
        """Begin to trace the requests of a batch, in their order; return their times, none if nothing is traced."""
        tracing = self._log.tracing
        if tracing is None:
            return []
        requests, bodies = chain.from_iterable(batch.by_template.values()), chain.from_iterable(batch.bodies)
        members: list[StageTimes | None] = []
        for request, body in zip(requests, bodies, strict=True):
            is_answered = not request.is_done and body is not None
            times = request.times = tracing.begin(request) if is_answered else None
            if times is not None:
                times.add("parse", request.arrived, request.arrived + request.read_s)
                times.add("serialise", batch.computed, batch.ended)
            members.append(times)
        return members

    def _respond(self, template: Template, requests: Iterable[PendingRequest], bodies: Iterable[bytes | None]) -> None:
        """Send the responses of one template."""
        line, before_length, before_id, end = template.response.head
        answered: list[PendingRequest] = []
        for request, body in zip(requests, bodies, strict=True):
            if request.is_done:
                continue
            if body is None:
                self.leave(request)
                continue
            connection = request.connection
            self._pending.end(request)
            request.id, request.sent, request.target = request.id or self._log.next_id(), len(body), template.target
            request_id = request.id
            if self._keys is not None and request.grant is not None:
                for name, value in self._keys.headers(request.grant, request.account):
                    request_id += b"\r\n%b: %b" % (name, value)
            date = connection.server_state.default_headers[0][1]
            # As uvicorn ends the head of the last response of a connection.
            rest = end if connection.keeps_alive else end[:-2] + b"connection: close\r\n\r\n"
            connection.answer(
                b"%b%b%b%d%b%b%b%b" % (line, date, before_length, len(body), before_id, request_id, rest, body)
            )
            if connection.link.is_lost:
                request.status = CLIENT_GONE
            answered.append(request)
            self.answered += 1
        self._log.answered(answered, template.counters)

    def _return_all(self, requests: Iterable[PendingRequest]) -> None:
        for request in requests:
            self.leave(request)

    def leave(self, request: PendingRequest) -> None:
        """Leave a request to the general path, unless it is done."""
        if not request.is_done:
            self._pending.give_up(request)
            request.connection.release(request.candidate)
