"""A light client: connections that send prepared requests, one after the other, and pass the answers on."""

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator

from tests.rows.cases import Case, comparable

LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)\r\n", re.IGNORECASE)
Answered = Callable[[Case, int, bytes], None]
"""Gets a request with the status and the body of its answer."""


class Lost(Exception):
    """The service closed a connection, or did not answer in time."""


async def replay(port: int, cases: Iterable[Case], at_once: int, answered: Answered, limit_s: float) -> None:
    """Send requests to a service on loopback, ``at_once`` at a time; raise ``Lost`` if one is not answered."""
    todo, loop, connections = iter(cases), asyncio.get_running_loop(), list[_Connection]()
    try:
        for _ in range(at_once):
            connections.append(_Connection(todo, answered, loop.create_future()))
            await loop.create_connection(lambda: connections[-1], "127.0.0.1", port)
        async with asyncio.timeout(limit_s):
            for connection in connections:
                await connection.end
    except TimeoutError:
        raise Lost(f"requests were not answered within {limit_s:g} s") from None
    finally:
        for connection in connections:
            connection.close()


def comparing(answered: Callable[[Case, bool, tuple[int, bytes]], None]) -> Answered:
    """Return what reports to ``answered`` whether each answer is the expected one, and what it was."""

    def compare(case: Case, status: int, body: bytes) -> None:
        # Almost all answers are right, and need no more than this.
        found = (status, body) if (status, body) == case.expected else comparable(status, body)
        answered(case, found == case.expected, found)

    return compare


class _Connection(asyncio.Protocol):
    """A connection, which sends a request when the one before is answered; ``end`` is set when there are no more."""

    def __init__(self, todo: Iterator[Case], answered: Answered, end: "asyncio.Future[None]") -> None:
        self._todo, self._answered, self.end = todo, answered, end
        self._transport: asyncio.Transport | None = None
        self._case: Case | None = None
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._next()

    def _next(self) -> None:
        assert self._transport is not None
        self._case = next(self._todo, None)
        if self._case is not None:
            self._transport.write(self._case.request)
        elif not self.end.done():
            self.end.set_result(None)
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._data = data = self._data + data if self._data else data
        end = data.find(b"\r\n\r\n") + 4
        if end < 4 or (length := LENGTH.search(data, 0, end)) is None or len(data) < end + int(length[1]):
            return
        case, self._data = self._case, b""
        assert case is not None
        self._answered(case, int(data[9:12]), data[end:])
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.end.done():
            path = self._case.request.split(b" ", 2)[1].decode() if self._case else ""
            self.end.set_exception(Lost(f"the service closed a connection during {path}: {exc}"))

    def close(self) -> None:
        """Close the connection, whatever it does."""
        self.end.cancel()
        if self._transport is not None:
            self._transport.close()
