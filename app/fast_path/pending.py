"""Requests with known prefixes that wait: whole ones for their turn of the event loop, others for their rest.

What a request holds until its response, a part of the budget, a place among the requests in flight and one of its key,
is released here.
"""

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from app.execution.lifecycle import Lifecycle
from app.fast_path.prefixes import RequestPrefix
from app.fast_path.templates import Columns, Template
from app.http.body import Budget
from app.http.connection import Connection
from app.http.keys import Keys

# Bodies up to SMALL come first in a turn. A turn ends at TURN bytes of bodies, each of which counts as EACH bytes more:
# that takes one or two milliseconds.
SMALL, TURN, EACH = 1 << 13, 1 << 19, 1 << 10
# How long the fast path waits for the rest of a request with a known prefix. After that, the general path waits.
PATIENCE_S = 0.05


@dataclass(eq=False, slots=True)
class PendingRequest:
    """A request from its arrival to its response: all its ``data``, and what the log shows of it.

    ``head`` is the key of its prefix. ``began`` and ``arrived``, the times of its first and last byte, are those of
    ``time.perf_counter``; reading took ``read_s``. ``shared`` is equal for requests that may share a call. ``key`` is
    the name of its key, empty without one. ``is_done``: it has been answered, or returned to the parser. The rest is
    that of ``app.execution.members.Member``.
    """

    connection: Connection
    data: bytes
    body: bytes
    head: bytes
    prefix: RequestPrefix
    target: str
    client: tuple[str, int] | None
    received: int
    began: float
    arrived: float
    latest: float = math.inf
    template: Template = field(init=False)
    columns: Columns = field(init=False)
    read_s: float = 0.0
    shared: Hashable = ()
    key: str = ""
    units: int = 0
    owner: str = ""
    may_wait: bool = True
    is_done: bool = False
    on_release: Callable[[], None] | None = None
    method: str = "POST"
    status: int = 200
    sent: int = 0
    id: bytes = b""


class _PartialRequest(NamedTuple):
    """The first part of a request, whose first byte came at ``since``; the whole body has ``size`` bytes."""

    data: bytes
    size: int
    since: float


class Pending:
    """The requests that wait, and parts of requests: at most one of each connection.

    ``taken`` are those that have had their turn, and no response yet.
    """

    def __init__(self, budget: Budget, lifecycle: Lifecycle, keys: Keys | None = None) -> None:
        """Start with none."""
        self._budget, self._lifecycle, self._keys = budget, lifecycle, keys
        # Not dicts: removing the first item of a dict takes time for each item that was removed before it.
        self.small, self.large = OrderedDict[Connection, PendingRequest](), OrderedDict[Connection, PendingRequest]()
        self.taken = dict[Connection, PendingRequest]()
        self._partial = dict[Connection, _PartialRequest]()
        self._is_sweeping = False

    def put(self, request: PendingRequest) -> None:
        """Let a whole request wait."""
        self._budget.free -= request.received
        self._lifecycle.in_flight += 1
        request.connection.is_waiting = True
        waiting = self.small if request.received <= SMALL else self.large
        waiting[request.connection] = request

    def turn(self) -> Iterator[PendingRequest]:
        """Take and yield the requests of one turn: small ones, then large ones, and at least one of each kind.

        So small requests never wait for several large ones, and neither kind waits for ever.
        """
        size = 0
        for waiting in (self.small, self.large):
            is_first = True
            while waiting and (is_first or size < TURN):
                connection, request = waiting.popitem(last=False)
                self.taken[connection] = request
                size, is_first = size + request.received + EACH, False
                yield request

    def put_aside(self, connection: Connection, data: bytes, size: int, since: float) -> None:
        """Let the first part of a request, which has come since then, wait for the rest of its ``size`` bytes."""
        self._budget.free -= size
        connection.is_waiting = True
        self._partial[connection] = _PartialRequest(data, size, since)
        if not self._is_sweeping:
            self._is_sweeping = True
            connection.loop.call_later(PATIENCE_S, self._sweep, connection.loop)

    def release(self, connection: Connection) -> tuple[bytes, float]:
        """Remove the request of a connection, or the part of one; return its data, and when the first byte came."""
        part = self._partial.pop(connection, None)
        if part is not None:
            connection.is_waiting = False
            self._budget.free += part.size
            return part.data, part.since
        waiting = (self.taken, self.small, self.large)
        request = next((each[connection] for each in waiting if connection in each), None)
        if request is None:
            return b"", time.perf_counter()
        self.end(request)
        if request.on_release is not None:
            request.on_release()
        return request.data, request.began

    def end(self, request: PendingRequest) -> None:
        """End a request, which has been answered, or is left to the general path."""
        connection = request.connection
        for waiting in (self.taken, self.small, self.large):
            if waiting.pop(connection, None) is not None:
                break
        request.is_done, connection.is_waiting = True, False
        self._budget.free += request.received
        self._lifecycle.in_flight -= 1
        if request.key and self._keys is not None:
            self._keys.leave(request.key)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """Leave slow requests to the general path."""
        until = time.perf_counter() - PATIENCE_S
        for connection in [connection for connection, part in self._partial.items() if part.since <= until]:
            connection.parse(*self.release(connection))
        self._is_sweeping = bool(self._partial)
        if self._is_sweeping:
            loop.call_later(PATIENCE_S, self._sweep, loop)
