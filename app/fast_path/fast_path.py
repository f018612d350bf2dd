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
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TypeAlias

from app.errors import PullbackError
from app.execution.engine import Engine
from app.fast_path.candidates import Candidate
from app.fast_path.pending import Pending, PendingRequest
from app.fast_path.prefixes import TemplateCache, Unknown, cut, parse_prefix
from app.fast_path.shared_calls import SharedCall
from app.fast_path.template_maker import TemplateMaker
from app.fast_path.templates import Columns, Template
from app.http.access_log import CLIENT_GONE, AccessLog
from app.http.body import Budget
from app.http.connection import Connection
from app.http.keys import Keys

logger = logging.getLogger("pullback")

Batch: TypeAlias = dict[Template, list[PendingRequest]]
"""The requests of a batch by their templates."""


class FastPath:
    """The fast path of a process; everything in it runs on the event loop."""

    def __init__(self, engine: Engine, budget: Budget, log: AccessLog, keys: Keys | None) -> None:
        """Start without templates. ``answered`` counts the requests."""
        self.answered = 0
        self._batches, self._lifecycle = engine.batches, engine.lifecycle
        self._budget, self._log, self._keys, self._cache = budget, log, keys, TemplateCache()
        self._pending = Pending(budget, engine.lifecycle)
        self._is_scheduled = False
        self.store = TemplateMaker(engine, self._cache).store

    def receive(self, connection: Connection, data: bytes) -> bytes:
        """Take the data of a connection that is idle, or waits here; return what it does not take.

        A request that it takes is answered in one of the next turns of the event loop (``Connection.answer``), or
        returned to the parser (``Connection.parse``).
        """
        since = None
        if connection.is_waiting:
            earlier, since = self._pending.release(connection)
            data = earlier + data
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
            self._pending.put_aside(connection, data, end - start, time.monotonic() if since is None else since)
            return b""
        began, client = time.perf_counter(), connection.client
        self._pending.put(
            PendingRequest(connection, data, data[start:], key, prefix, prefix.target, client, end - start, began)
        )
        if len(connection.connections) == 1:
            # Nothing else can arrive in this turn.
            self._run()
        else:
            self._schedule()
        return b""

    def release(self, connection: Connection) -> bytes:
        """Let go of the request of a connection, or of the part of one; return its data."""
        return self._pending.release(connection)[0]

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        """Answer the requests of this turn."""
        self._is_scheduled = False
        waiting = dict[SharedCall, Batch]()
        try:
            for request in self._pending.turn():
                if self._read(request):
                    template = request.template
                    waiting.setdefault(template.call, {}).setdefault(template, []).append(request)
                else:
                    request.connection.parse(request.data)
        finally:
            for call, batch in waiting.items():
                self._answer_all(call, batch)
            if self._pending.small or self._pending.large:
                self._schedule()

    def _read(self, request: PendingRequest) -> bool:
        """Read the numbers of a request; return whether that worked. If not, the general path must answer it."""
        began, prefix = time.perf_counter(), request.prefix
        if self._lifecycle.draining:
            return False
        try:
            found = prefix.find(request.body)
        except Exception:
            logger.exception("the fast path cannot read a request, and leaves it to the general path")
            return False
        if isinstance(found, Unknown):
            likeness = request.head, found.likeness
            if self._cache.is_due(likeness):
                request.connection.candidate = Candidate(request.head, request.body, likeness)
            return False
        request.template, columns = found
        if columns is None:
            return False
        if self._keys is not None:
            try:
                request.key = self._keys.name_of(prefix.authorization)
                self._keys.enter(request.key)
            except PullbackError:
                return False
        request.columns, request.parsed = columns, time.perf_counter()
        request.read_s = request.parsed - began
        return True

    def _answer_all(self, call: SharedCall, batch: Batch) -> None:
        """Answer the requests of a turn that may share a call, in one call if that is known to run inline."""
        total = 0
        for template, requests in batch.items():
            total += template.size * len(requests)
            if self._keys is not None:
                for request in requests:
                    self._keys.leave(request.key)
        try:
            packing = call.packing
            best = packing.length_for(min(total, packing.most))
            runs_inline = self._batches.runs_inline(packing, best) or False
            if runs_inline and total <= packing.most:
                self._answer(call, batch, total)
                return
            for part, count in self._parts_of(call, batch, best, runs_inline=runs_inline):
                self._answer(call, part, count)
        except Exception:
            logger.exception("the fast path failed, and leaves its requests to the general path")
            self._return(request for request in chain.from_iterable(batch.values()) if not request.is_done)

    def _parts_of(self, call: SharedCall, batch: Batch, best: int, *, runs_inline: bool) -> Iterator[tuple[Batch, int]]:
        """Yield batches of a length that is known to run inline, each with its count of numbers; return the others.

        If the best length is not known to run inline, the requests that fill it take the general path, which times it.
        """
        lengths = [each for each in call.packing.lengths if self._batches.runs_inline(call.packing, each)]
        for template, requests in batch.items():
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
        began, read_s, columns, parsed = time.perf_counter(), 0.0, list[Columns](), list[float]()
        requests = list(chain.from_iterable(batch.values()))
        for request in requests:
            columns.append(request.columns)
            parsed.append(request.parsed)
            read_s += request.read_s
        try:
            results = call.run(columns, count)
        except Exception:  # noqa: BLE001 - the general path reports the error
            self._return(requests)
            return
        computed, start, first = time.perf_counter(), 0, requests[0]
        first.template.counters.batched(parsed, began, computed)
        date = first.connection.server_state.default_headers[0][1]
        for template, alike in batch.items():
            response, answered, shape = template.response, list[PendingRequest](), (len(alike), template.size)
            bodies = response.bodies(call.rows(results, response.keys, start, shape))
            start += len(alike) * template.size
            line, before_length, before_id, end = response.head
            for request, body in zip(alike, bodies, strict=True):
                if body is None:
                    self._return([request])
                    continue
                request.is_done, request.id, request.sent = True, self._log.next_id(), len(body)
                request.connection.answer(
                    b"%b%b%b%d%b%b%b%b" % (line, date, before_length, len(body), before_id, request.id, end, body)
                )
                if request.connection.link.is_lost:
                    request.status = CLIENT_GONE
                answered.append(request)
                self.answered += 1
            self._log.answered(answered, template.counters)
        first.template.parse_counters.spent("parse", read_s)
        first.template.counters.spent("serialise", time.perf_counter() - computed)

    def _return(self, requests: Iterable[PendingRequest]) -> None:
        """Leave these requests to the general path."""
        for request in requests:
            request.is_done = True
            request.connection.parse(request.data)
