"""Arrivals: whole requests with known prefixes, which wait until a turn of the event loop reads and computes them."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from app.fast_path.prefixes import RequestPrefix
from app.http.connection import Connection

# Bodies up to SMALL come first in a turn. A turn ends at TURN bytes of bodies, each of which counts as EACH bytes more:
# that takes one or two milliseconds.
SMALL, TURN, EACH = 1 << 13, 1 << 17, 1 << 10


@dataclass(eq=False, slots=True)
class Arrival:
    """A request that waits for its turn: all its ``data``, its body, and the key of its prefix, and the prefix.

    ``began`` is a time of ``time.perf_counter``.
    """

    connection: Connection
    data: bytes
    body: bytes
    key: bytes
    prefix: RequestPrefix
    began: float


class Arrivals:
    """The requests that wait, at most one of each connection."""

    def __init__(self) -> None:
        """Start with none."""
        # To remove the first item of a dict takes time for all that have been removed before.
        self._small, self._large = OrderedDict[Connection, Arrival](), OrderedDict[Connection, Arrival]()

    def __bool__(self) -> bool:
        """Return whether any request waits."""
        return bool(self._small or self._large)

    def put(self, arrival: Arrival) -> None:
        """Let a request wait."""
        waiting = self._small if len(arrival.body) <= SMALL else self._large
        waiting[arrival.connection] = arrival

    def pop(self, connection: Connection) -> Arrival | None:
        """Remove and return the request of a connection, ``None`` if it has none."""
        return self._small.pop(connection, None) or self._large.pop(connection, None)

    def turn(self) -> Iterator[Arrival]:
        """Remove and yield the requests of one turn: small ones, then large ones, and at least one of each kind.

        So small requests never wait for several large ones, and neither kind waits for ever.
        """
        size = 0
        for waiting in (self._small, self._large):
            is_first = True
            while waiting and (is_first or size < TURN):
                _, arrival = waiting.popitem(last=False)
                size, is_first = size + len(arrival.body) + EACH, False
                yield arrival
