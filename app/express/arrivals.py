"""Arrivals: whole requests with learned heads, which wait until a turn of the event loop reads and computes them."""

from collections.abc import Iterator
from dataclasses import dataclass

from app.express.heads import Head
from app.http.connection import Connection

# Bodies up to SMALL come first in a turn. A turn ends at TURN bytes of bodies, which take about a millisecond.
SMALL, TURN = 1 << 13, 1 << 17


@dataclass(eq=False, slots=True)
class Arrival:
    """A request that waits for its turn: all its ``data``, its body, and the key and the head that it begins with.

    ``began`` is a time of ``time.perf_counter``.
    """

    connection: Connection
    data: bytes
    body: bytes
    key: bytes
    head: Head
    began: float


class Arrivals:
    """The requests that wait, at most one of each connection."""

    def __init__(self) -> None:
        """Start with none."""
        self._small, self._large = dict[Connection, Arrival](), dict[Connection, Arrival]()

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
                arrival = waiting.pop(next(iter(waiting)))
                size, is_first = size + len(arrival.body), False
                yield arrival
