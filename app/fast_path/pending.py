"""Requests that wait: whole ones for their turn of the event loop, others for the rest of their body.

What a request holds until its response, a part of the budget, a place among the requests in flight and one of its key,
is released here.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field

from app.execution.lifecycle import Lifecycle
from app.fast_path.cache import Head
from app.fast_path.templates import Columns, Template
from app.http.body import Budget
from app.http.connection import Connection
from app.http.fast_path import Candidate
from app.http.keys import Keys
from app.telemetry.accounts import NOT_CHARGED, Account, Owner
from app.telemetry.stage_times import TRACEPARENT, TRACESTATE, StageTimes
from pullback.keys import Grant

# Bodies up to SMALL come first in a turn. A turn ends at TURN bytes of bodies, each of which counts as EACH bytes more:
# that takes one or two milliseconds.
SMALL, TURN, EACH = 1 << 13, 1 << 19, 1 << 10
# How long the fast path waits for the rest of a request. After that, the general path waits.
PATIENCE_S = 0.05


@dataclass(eq=False)
class PendingRequest:
    """A request from its head to its response: its ``body``, as far as it has arrived, and what the log shows of it.

    The body has ``received`` bytes. ``began`` and ``arrived``, the times of its first and last byte, are those of
    ``time.perf_counter``; reading took ``read_s``. ``shared`` is equal for requests that may share a call. ``key`` is
    the name of its key, empty without one, ``grant`` what the key allows, and ``account`` what it has used.
    ``is_done``: it has been answered, or released to the general path, maybe as a ``candidate``. The rest is that of
    ``app.execution.lines.Member``.
    """

    connection: Connection
    head: Head
    client: tuple[str, int] | None
    received: int
    began: float
    latest: float = math.inf
    # To leave these to the class takes less time than to set them.
    authorization: bytes = field(default=b"", init=False)
    id: bytes = field(default=b"", init=False)
    body: bytes = field(default=b"", init=False)
    arrived: float = field(default=0.0, init=False)
    template: Template = field(init=False)
    columns: Columns = field(init=False)
    read_s: float = field(default=0.0, init=False)
    shared: Hashable = field(default=(), init=False)
    key: str = field(default="", init=False)
    grant: Grant | None = field(default=None, init=False)
    account: Account = field(default=NOT_CHARGED, init=False)
    units: int = field(default=0, init=False)
    owner: Owner = field(init=False)
    may_wait: bool = field(default=True, init=False)
    is_done: bool = field(default=False, init=False)
    candidate: Candidate | None = field(default=None, init=False)
    on_release: Callable[[], None] | None = field(default=None, init=False)
    method: str = field(default="POST", init=False)
    target: str = field(default="", init=False)
    status: int = field(default=200, init=False)
    sent: int = field(default=0, init=False)
    times: StageTimes | None = field(default=None, init=False)

    # A connection has these until its next request.

    @property
    def traceparent(self) -> bytes:
        """The header that names the caller's span, empty without one."""
        return self.connection.varying.get(TRACEPARENT, b"")

    @property
    def tracestate(self) -> bytes:
        """The header with the state of the caller's trace, empty without one."""
        return self.connection.varying.get(TRACESTATE, b"")

    @property
    def scheme(self) -> str:
        """The scheme of the request's URL."""
        return self.connection.scheme or ""

    @property
    def route(self) -> str:
        """The template of the path."""
        return self.template.route


class Pending:
    """The requests of a process that wait, by size."""

    def __init__(self, budget: Budget, lifecycle: Lifecycle, keys: Keys | None = None) -> None:
        """Start with none; those that wait hold a part of ``budget``, and are in flight in ``lifecycle``."""
        self._budget, self._lifecycle, self._keys = budget, lifecycle, keys
        # Those that have ended meanwhile are among them.
        self.small, self.large = deque[PendingRequest](), deque[PendingRequest]()
        self._partial = dict[PendingRequest, None]()
        self._is_sweeping = False

    def begin(self, request: PendingRequest) -> None:
        """Take what a request holds until its end."""
        self._budget.free -= request.received
        self._lifecycle.in_flight += 1

    def put(self, request: PendingRequest) -> None:
        """Let a whole request wait for its turn."""
        if self._partial:
            self._partial.pop(request, None)
        (self.small if request.received <= SMALL else self.large).append(request)

    def put_aside(self, request: PendingRequest) -> None:
        """Let a request wait for the rest of its body."""
        self._partial[request] = None
        if not self._is_sweeping:
            self._is_sweeping = True
            request.connection.loop.call_later(PATIENCE_S, self._sweep, request.connection.loop)

    def turn(self) -> Iterator[PendingRequest]:
        """Take and yield the requests of one turn: small ones, then large ones, and at least one of each kind.

        So small requests never wait for several large ones, and neither kind waits for ever.
        """
        size = 0
        for waiting in (self.small, self.large):
            is_first = True
            while waiting and (is_first or size < TURN):
                request = waiting.popleft()
                if not request.is_done:
                    size, is_first = size + request.received + EACH, False
                    yield request

    def end(self, request: PendingRequest) -> None:
        """End a request."""
        if self._partial:
            self._partial.pop(request, None)
        request.is_done = True
        self._budget.free += request.received
        self._lifecycle.in_flight -= 1
        if request.grant is not None and self._keys is not None:
            self._keys.leave(request.grant, request.account)

    def give_up(self, request: PendingRequest) -> None:
        """End a request, which takes the general path: there it is counted for its key."""
        self.end(request)
        if request.grant is not None and self._keys is not None:
            self._keys.give_back(request.grant)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """Leave slow requests to the general path."""
        until = time.perf_counter() - PATIENCE_S
        for request in [request for request in self._partial if request.began <= until]:
            self.end(request)
            request.connection.release()
        self._is_sweeping = bool(self._partial)
        if self._is_sweeping:
            loop.call_later(PATIENCE_S, self._sweep, loop)
